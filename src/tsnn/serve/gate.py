"""The gate in front of the application: who may enter, how much they may bring, and one log line for each.

It is plain ASGI and stands outside everything else, so that a request with a wrong token or too large a body is
answered before any of its body is read or parsed.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from tsnn.serve.metrics import Metrics

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN_PATHS = frozenset({"/"})  # the page holds no data; it asks for the token itself
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
BODY_SECONDS = 30.0
logger = logging.getLogger("tsnn.serve")


class Refusal(Exception):  # noqa: N818 - an answer, not an error of the program
    """A request that goes no further."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Gate:
    """Checks the token, bounds the body, measures and logs."""

    def __init__(
        self, application: Application, metrics: Metrics, paths: frozenset[str], token: str | None, max_body: int
    ) -> None:
        self._application, self._metrics, self._paths = application, metrics, paths
        self._token = None if token is None else token.encode()
        self._max_body = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event of ASGI."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        began = time.perf_counter()
        status = 500  # until the application has begun to answer

        async def send_noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            self._admit(scope)
            body = await self._read(scope, receive)
            await self._application(scope, _replaying(body, receive), send_noting)
        except Refusal as refusal:
            await _answer(refusal, send_noting)
        finally:
            self._note(scope, status, time.perf_counter() - began)

    def _admit(self, scope: Scope) -> None:
        if scope["path"] in OPEN_PATHS:
            return
        headers = dict(scope["headers"])
        if self._token is None:
            host = headers.get(b"host", b"").decode("latin-1").rpartition(":")
            name = host[0] if host[0] and host[2].isdigit() else "".join(host)
            if name not in LOOPBACK_NAMES:  # another site's page, led here by its name server
                raise Refusal(403, "without a token the service answers only under the name localhost or 127.0.0.1.")
            return
        given = headers.get(b"authorization", b"")
        if not hmac.compare_digest(given, b"Bearer " + self._token):
            raise Refusal(401, "the bearer token is missing or wrong; send it as Authorization: Bearer TOKEN.")

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if length.isdigit() and int(length) > self._max_body:
            raise self._too_large()
        parts, size = [], 0
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while True:
                    message = await receive()
                    part = message.get("body", b"")
                    parts.append(part)
                    size += len(part)
                    if size > self._max_body:
                        raise self._too_large()
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            raise Refusal(408, f"the body did not arrive within {BODY_SECONDS:.0f} s; send it again.") from None

    def _too_large(self) -> Refusal:
        return Refusal(413, f"the body is larger than {self._max_body} bytes; send fewer events at once.")

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        path = scope["path"] if scope["path"] in self._paths else "other"
        self._metrics.saw_request(path, status, seconds)
        if logger.isEnabledFor(logging.INFO):
            client = (scope.get("client") or ("", 0))[0]
            fields = {"method": scope["method"], "path": scope["path"][:200], "status": status, "client": client}
            logger.info("request", extra={"fields": {**fields, "ms": round(seconds * 1e3, 2)}})


def _replaying(body: bytes, receive: Receive) -> Receive:
    """The body in one piece, then whatever the connection says next."""
    waiting = [body]

    async def replay() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return replay


async def _answer(refusal: Refusal, send: Send) -> None:
    body = json.dumps({"error": str(refusal)}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),  # the rest of the request is not read
    ]
    if refusal.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, what happened, and the fields that came with it."""
        line: dict[str, Any] = {"time": round(record.created, 3), "level": record.levelname.lower()}
        line["event"] = record.getMessage()
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line)
