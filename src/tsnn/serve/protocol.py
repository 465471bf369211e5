"""HTTP heads of bounded size, before anything of ours sees them.

Of the two parsers that uvicorn can use, h11 bounds what it holds of a head that is not complete yet, and httptools does
not: a head of hundreds of megabytes would be kept whole, and parsed in one go, before any token is looked at.
"""

from __future__ import annotations

from typing import Any

MAX_HEAD = 64 * 1024  # bytes of the address and all fields together, beside what one read from the line brings

HTTP_PROTOCOL: Any  # what to give uvicorn as `http`: its faster parser, bounded, where that is installed
try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ModuleNotFoundError:
    HTTP_PROTOCOL = "h11"
else:

    class Bounded(HttpToolsProtocol):
        """Counts bytes that bring neither a whole head nor a part of a body."""

        _idle = 0
        _moved = _refused = False

        def data_received(self, data: bytes) -> None:
            """Parse, and hang up where too much comes in that brings nothing."""
            if self._refused:
                return
            self._moved = False
            super().data_received(data)
            self._idle = 0 if self._moved else self._idle + len(data)
            if self._idle > MAX_HEAD:
                self._refuse()

        def on_headers_complete(self) -> None:
            """The head is whole."""
            self._moved = True
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            """A piece of the body."""
            self._moved = True
            super().on_body(body)

        def _refuse(self) -> None:
            self._refused = True
            text = b'{"error":"the head of the request is larger than %d bytes; send less in it."}' % MAX_HEAD
            head = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n"
            kind = b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(text)
            self.transport.write(head + kind + text)
            self.transport.close()

    HTTP_PROTOCOL = Bounded
