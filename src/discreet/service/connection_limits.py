"""Limits on connections: size of a request's head, and time until the head is complete.

The head is the request line with the headers. A proxy also has such limits. The limits in this module are
needed without a proxy. They are implemented in uvicorn's protocol class, because the application receives a
request only when its head is complete. A complete head that is too large is rejected by the application
(:class:`discreet.service.app.Door`).
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

HEAD_BYTES = 16 * 2**10  # largest number of bytes in the request line and headers
# Seconds from the start of a connection, or from the first byte of its next request, to a complete head.
HEAD_SECONDS = 10.0
# Largest number of transferred bytes per byte of a body. A chunk of one byte is transferred as six bytes.
_FRAMING = 6
_WORDS = b'{"reason":"%s","words":"the head of a request is too large, or takes too long"}'
_KINDS = {b"slow": b"408 Request Timeout", b"oversized": b"431 Request Header Fields Too Large"}


class _Guarded(_Protocol):
    """Uvicorn protocol that closes a connection if the head of a request arrives too slowly."""

    _deadline: asyncio.TimerHandle | None = None
    _shut = False

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Start the deadline for the first head of the connection."""
        super().connection_made(transport)
        self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the deadline of a connection that is closed."""
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
        """Close the connection.

        The reason is sent first, unless an answer to an earlier request is still being sent.
        """
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
    """Uvicorn's protocol in pure Python, with a deadline.

    The library h11 limits the buffer of a head or of a chunk.
    """

    def data_received(self, data: bytes) -> None:
        """Receive bytes of a head, of a body, or of several requests."""
        if self._shut:
            return
        self._begin()
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:  # true after the end of the head
            self._headed()


def _httptools() -> Any:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class Guarded(_Guarded, HttpToolsProtocol):
        """Uvicorn's fast protocol, with a deadline and a size limit.

        Without this class, the fast protocol has no limit on the number or the length of headers.
        """

        _raw = _body = 0  # number of transferred bytes of this request, and number of bytes of its body

        def data_received(self, data: bytes) -> None:
            """Receive bytes of a head, of a body, or of several requests."""
            if self._shut:
                return
            if self._raw == 0:
                self._begin()
            self._raw += len(data)
            super().data_received(data)
            # this is more than the bytes of an allowed head and of this body
            if self._raw > HEAD_BYTES + _FRAMING * self._body:
                self._refuse(b"oversized")

        def on_headers_complete(self) -> None:
            """Cancel the deadline, because the head is complete."""
            self._headed()
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            """Count the bytes of a body; the application limits the size of bodies."""
            self._body += len(body)
            super().on_body(body)

        def on_message_complete(self) -> None:
            """Reset the counters; the next bytes belong to another request."""
            self._raw = self._body = 0
            super().on_message_complete()

    return Guarded


def protocol() -> Any:
    """Return the protocol class for connections: the fast one if httptools is installed, otherwise h11's."""
    try:
        return _httptools()
    except ImportError:
        return GuardedH11
