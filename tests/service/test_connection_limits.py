"""Limits of connections: a head has a size and a deadline."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvicorn

from discreet.service.app import Service
from discreet.service.connection_limits import HEAD_BYTES, HEAD_SECONDS, GuardedH11, protocol

from .test_operations import asked


async def nothing(scope: Any, receive: Any, send: Any) -> None:
    """An application."""


def test_a_head_that_is_too_large_is_refused(service: Service) -> None:
    for how in ({"headers": {"X-More": "a" * HEAD_BYTES}}, {"params": {"a": "b" * HEAD_BYTES}}):
        answer = asked(service, "GET", "/plan", **how)
        assert (answer.status_code, answer.json()["reason"]) == (431, "headers")
    assert asked(service, "GET", "/plan", headers={"X-More": "a" * (HEAD_BYTES - 1000)}).status_code == 200


class Loop:
    """A loop whose timers fire when the test says so, and whose tasks do nothing."""

    def __init__(self) -> None:
        self.timers: list[Any] = []

    def call_later(self, seconds: float, called: Any, *given: Any) -> Any:
        timer = type("Timer", (), {"seconds": seconds, "fire": lambda _: called(*given)})()
        timer.cancel = lambda: self.timers.remove(timer) if timer in self.timers else None
        self.timers.append(timer)
        return timer

    def create_task(self, work: Any, **_: Any) -> Any:
        work.close()
        return type("Task", (), {"add_done_callback": lambda *_: None})()


class Transport(asyncio.Transport):
    """What was written, and whether it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.sent, self.closed = b"", False

    def write(self, data: Any) -> None:
        self.sent += bytes(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


@pytest.mark.parametrize("kind", sorted({GuardedH11, protocol()}, key=str), ids=lambda one: one.__name__)
def test_a_head_has_a_limit_and_a_deadline(kind: Any) -> None:
    """Of the protocol that is used without httptools, and of the one with it, where that is installed."""
    config = uvicorn.Config(
        nothing, http=kind, h11_max_incomplete_event_size=HEAD_BYTES, log_config=None, lifespan="off"
    )
    config.load()

    def connected() -> tuple[Any, Transport, Loop]:
        from uvicorn.server import ServerState

        loop, transport = Loop(), Transport()
        one = kind(config=config, server_state=ServerState(), app_state={}, _loop=loop)
        one.connection_made(transport)
        return one, transport, loop

    one, transport, loop = connected()
    assert [timer.seconds for timer in loop.timers] == [HEAD_SECONDS]  # also where nothing is ever sent
    one.data_received(b"GET /plan HTTP/1.1\r\nHost: a\r\n")
    (timer,) = loop.timers
    timer.fire()
    assert transport.closed
    assert transport.sent.startswith(b"HTTP/1.1 408 ")
    one.connection_lost(None)

    one, transport, loop = connected()
    one.data_received(b"GET /plan HTTP/1.1\r\nHost: a\r\n\r\n")
    assert loop.timers == []  # the head is whole; what follows has other limits
    assert not transport.closed
    one.connection_lost(None)

    for endless in (b"X: y\r\n", b"x"):  # many headers, or one without an end
        one, transport, loop = connected()
        one.data_received(b"GET /plan HTTP/1.1\r\nHost: a\r\n" + (b"X: " if endless == b"x" else b""))
        came = 0
        while not transport.closed:
            one.data_received(endless * 100)
            came += 100 * len(endless)
            assert came < 2 * HEAD_BYTES
        assert transport.sent[9:12] in (b"431", b"400")
        one.connection_lost(None)
        assert loop.timers == []

    one, transport, loop = connected()  # a body may be as long as the application lets it be
    one.data_received(b"POST /messages HTTP/1.1\r\nHost: a\r\nContent-Length: 4000000\r\n\r\n")
    for _ in range(40):
        one.data_received(b"0" * 100_000)
    assert not transport.closed
    one.connection_lost(None)
