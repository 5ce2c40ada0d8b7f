"""Many requests share a commit."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest


def test_many_requests_share_a_commit(tmp_path: Path) -> None:
    """While one transaction is written, the next is collected; who asked hears of her own."""
    from discreet.service.database import RequestResult
    from discreet.service.ingest import Busy, Intake

    sizes: list[int] = []

    class Slow:
        def admit(self, requests: list[Any], *_: Any, **__: Any) -> list[RequestResult]:
            sizes.append(len(requests))
            time.sleep(0.02)
            if None in requests:
                raise OSError("no space")
            return [RequestResult("counted", one) for one in requests]

    async def run() -> list[Any]:
        intake = Intake(Slow(), 1.0, lambda: None)  # type: ignore[arg-type]
        intake.start()
        found = await asyncio.gather(*(intake.put([i]) for i in range(100)))  # type: ignore[list-item]
        with pytest.raises(Busy):
            await intake.put([None])  # type: ignore[list-item]
        await intake.stop()
        return found

    assert [one.plan for (one,) in asyncio.run(run())] == list(range(100))
    assert sum(sizes) == 101
    assert len(sizes) <= 4
