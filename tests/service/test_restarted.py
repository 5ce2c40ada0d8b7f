"""A deploy: the service is killed and started again behind nginx while everybody sends; nothing is lost.

``python -m benchmarks.studies.service_restart`` does so with 1 000 people.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import serving  # noqa: F401  (skips where the service's packages are missing)

from benchmarks.studies.service_restart import CLIENTS, NGINX, NODE, trial

pytestmark = [
    pytest.mark.service,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(NGINX is None, reason="no nginx"),
]


@pytest.mark.parametrize("client", CLIENTS)
def test_no_message_is_lost_while_the_service_restarts(tmp_path: Path, client: str) -> None:
    if client == "javascript" and NODE is None:
        pytest.skip("no node")
    found = trial(60, client, tmp_path)
    assert (found.met, found.counted, found.lost, found.stored) == (60, 60, 0, 60)
