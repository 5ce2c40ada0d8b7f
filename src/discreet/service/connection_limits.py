"""Limits of one connection: the size of a request's head, and the time in which it must arrive.

A proxy has such limits; these apply if no proxy is in front of the service. They are in the protocol, because
the application receives a request only when its head is whole. The application rejects a whole head that is
too large (:class:`discreet.service.app.Door`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol as _Protocol
else:
    _Protocol = object

__all__ = ["HEAD_BYTES", "HEAD_SECONDS", "protocol"]

HEAD_BYTES = 16 * 2**10  # of a request's line and headers.
HEAD_SECONDS = 10.0  # From a connection, or the first byte of its next request, to a whole head.
_FRAMING = 6  # Most transferred bytes for a byte of a body: a chunk of one byte takes six.
_WORDS = b'{"reason":"%s","words":"the head of a request is too large, or takes too long"}'
_KINDS = {b"slow": b"408 Request Timeout", b"oversized": b"431 Request Header Fields Too Large"}


class _Guarded(_Protocol):
    """Protocol of uvicorn that closes a connection if the head of its request is too slow."""

    _deadline: asyncio.TimerHandle | None = None
    _shut = False

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Start the deadline of the connection's first head."""
        super().connection_made(transport)
        self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the deadline of a closed connection."""
        self._headed()
        self._shut = True
        super().connection_lost(exc)

    def _begin(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_SECONDS, self._refuse, b"slow")

    def _headed(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _refuse(self, reason: bytes) -> None:
        """Close the connection; give the reason unless an answer to an earlier request is under way."""
        if self._shut:
            return
        self._shut = True
        self._headed()
        if self.cycle is None or self.cycle.response_complete:
            body = _WORDS % reason
            self.transport.write(
                b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
                b"connection: close\r\n\r\n%s" % (_KINDS[reason], len(body), body)
            )
        self.transport.close()


class GuardedH11(_Guarded, H11Protocol):
    """uvicorn's protocol in Python; h11 itself limits the buffer of a head or of a chunk."""

    def data_received(self, data: bytes) -> None:
        """Receive bytes of a head, of a body, or of several requests."""
        if self._shut:
            return
        self._begin()
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:  # not before the end of a head
            self._headed()


def _httptools() -> Any:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class Guarded(_Guarded, HttpToolsProtocol):
        """uvicorn's fast protocol, which itself does not limit the number or length of headers."""

        _raw = _body = 0  # bytes of this request: transferred, and of its body

        def data_received(self, data: bytes) -> None:
            """Receive bytes of a head, of a body, or of several requests."""
            if self._shut:
                return
            if self._raw == 0:
                self._begin()
            self._raw += len(data)
            super().data_received(data)
            if self._raw > HEAD_BYTES + _FRAMING * self._body:  # endless head or body
                self._refuse(b"oversized")

        def on_headers_complete(self) -> None:
            """End the deadline: the head is whole."""
            self._headed()
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            """Count bytes of a body; the application limits bodies."""
            self._body += len(body)
            super().on_body(body)

        def on_message_complete(self) -> None:
            """End the request; the next bytes belong to another one."""
            self._raw = self._body = 0
            super().on_message_complete()

    return Guarded


def protocol() -> Any:
    """Return the protocol for connections: the fast one if httptools is installed."""
    try:
        return _httptools()
    except ImportError:
        return GuardedH11
