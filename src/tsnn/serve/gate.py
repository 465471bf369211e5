"""The gate in front of the application: who may enter, how much they may bring, and one log line for each.

It is plain ASGI outside everything else, so that a wrong token or too large a body is refused before any parsing.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import logging
import re
import time
from contextlib import suppress
from functools import lru_cache
from typing import Any, NoReturn

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tsnn.serve.metrics import Metrics

OPEN = frozenset({"/", "/health/live", "/health/ready"})  # they hold no data; the page asks for the token itself
BODY_SECONDS = 30.0
DRAIN_SECONDS = 5.0
DRAINED = 16  # times the largest body: so much of one that is too large is still taken from the line
BODIES = 4  # of the largest size, or as many smaller ones as fill the same memory, may be at work at once
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
        self._free = BODIES * max_body  # bytes of bodies that may still come in

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

        body = bytearray()
        try:
            request = Request(scope, receive)
            self._admit(request)
            await self._read(request, body)
            await self._application(scope, _replaying(bytes(body), receive), send_noting)
        except HTTPException as refusal:
            headers = {"connection": "close", **(refusal.headers or {})}  # the rest of the request is not read
            answer = JSONResponse({"error": refusal.detail}, refusal.status_code, headers)
            await answer(scope, receive, send_noting)
        finally:
            self._free += len(body)
            self._note(scope, status, time.perf_counter() - began)

    def _admit(self, request: Request) -> None:
        if request.scope["path"] in OPEN:
            return
        if self._token is None:
            name = re.sub(r":\d+$", "", request.headers.get("host", ""))
            if not is_loopback(name.strip("[]")):  # another site's page, led here by its name server
                sentence = "without a token the service answers only under localhost or a loopback address."
                raise HTTPException(403, sentence)
            return
        given = request.headers.get("authorization", "").encode("latin-1")
        if not hmac.compare_digest(given, b"Bearer " + self._token):
            sentence = "the bearer token is missing or wrong; send it as Authorization: Bearer TOKEN."
            raise HTTPException(401, sentence, {"www-authenticate": "Bearer"})

    async def _read(self, request: Request, body: bytearray) -> None:
        length = request.headers.get("content-length", "")
        expected = int(length) if length.isdecimal() else 0
        try:
            async with asyncio.timeout(BODY_SECONDS):
                if expected > self._max_body:
                    await self._refuse_size(request, expected)
                async for part in request.stream():
                    if len(body) + len(part) > self._max_body:
                        await self._refuse_size(request, expected)
                    if len(part) > self._free:
                        sentence = "too many large requests are at work; send the events again in a moment."
                        raise HTTPException(429, sentence, {"retry-after": "1"})
                    self._free -= len(part)
                    body += part
        except (TimeoutError, ClientDisconnect):
            sentence = f"the body did not arrive within {BODY_SECONDS:.0f} s; send it again."
            raise HTTPException(408, sentence) from None

    async def _refuse_size(self, request: Request, expected: int) -> NoReturn:
        """Say so once the body is off the line: a client that is still sending would only see a closed connection."""
        left = DRAINED * self._max_body
        with suppress(TimeoutError, ClientDisconnect):
            async with asyncio.timeout(DRAIN_SECONDS if expected <= left else 0):
                while left > 0 and (message := await request.receive()).get("more_body"):
                    left -= len(message.get("body", b""))
        raise HTTPException(413, f"the body is larger than {self._max_body} bytes; send fewer events at once.")

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


@lru_cache(64)
def is_loopback(host: str) -> bool:
    """Whether a name or an address can only be this machine's own."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, what happened, and the fields that came with it."""
        line: dict[str, Any] = {"time": round(record.created, 3), "level": record.levelname.lower()}
        line |= {"event": record.getMessage(), **getattr(record, "fields", {})}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line)
