"""The gate in front of the application: who may enter, how much they may bring, and one log line for each.

It is plain ASGI outside everything else, so that a wrong token or too large a body is refused before any parsing.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import re
import time
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tsnn.serve.metrics import Metrics

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
BODY_SECONDS = 30.0
logger = logging.getLogger("tsnn.serve")


class Gate:
    """Checks the token, bounds the body, measures and logs."""

    def __init__(
        self, application: ASGIApp, metrics: Metrics, paths: frozenset[str], token: str | None, max_body: int
    ) -> None:
        self._application = application
        self._metrics = metrics
        self._paths = paths
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
            request = Request(scope, receive)
            self._admit(request)
            body = await self._read(request)
            await self._application(scope, _replaying(body, receive), send_noting)
        except HTTPException as refusal:
            headers = {"connection": "close", **(refusal.headers or {})}  # the rest of the request is not read
            answer = JSONResponse({"error": refusal.detail}, refusal.status_code, headers)
            await answer(scope, receive, send_noting)
        finally:
            self._note(scope, status, time.perf_counter() - began)

    def _admit(self, request: Request) -> None:
        if request.scope["path"] == "/":  # the page holds no data; it asks for the token itself
            return
        if self._token is None:
            name = re.sub(r":\d+$", "", request.headers.get("host", ""))
            if name not in LOOPBACK_NAMES:  # another site's page, led here by its name server
                sentence = "without a token the service answers only under the name localhost or 127.0.0.1."
                raise HTTPException(403, sentence)
            return
        given = request.headers.get("authorization", "").encode("latin-1")
        if not hmac.compare_digest(given, b"Bearer " + self._token):
            sentence = "the bearer token is missing or wrong; send it as Authorization: Bearer TOKEN."
            raise HTTPException(401, sentence, {"www-authenticate": "Bearer"})

    async def _read(self, request: Request) -> bytes:
        too_large = HTTPException(413, f"the body is larger than {self._max_body} bytes; send fewer events at once.")
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length) > self._max_body:
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for part in request.stream():
                    body += part
                    if len(body) > self._max_body:
                        raise too_large
        except (TimeoutError, ClientDisconnect):
            sentence = f"the body did not arrive within {BODY_SECONDS:.0f} s; send it again."
            raise HTTPException(408, sentence) from None
        return bytes(body)

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


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, what happened, and the fields that came with it."""
        line: dict[str, Any] = {"time": round(record.created, 3), "level": record.levelname.lower()}
        line |= {"event": record.getMessage(), **getattr(record, "fields", {})}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line)
