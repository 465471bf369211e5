"""The service over HTTP: thin functions from requests to the live service and back."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from pydantic import BeforeValidator
from starlette.exceptions import HTTPException

from tsnn.errors import InputError, TsnnError
from tsnn.serve import answers, schemas
from tsnn.serve.gate import Gate
from tsnn.serve.schemas import MAX_TOP, read_id, read_time
from tsnn.serve.service import BusyError, Service

MAX_BODY = 4 * 2**20
SMALL_BODY = 64 * 2**10  # of events: parsed in less time than another thread would take to begin
PAGE = files("tsnn.serve").joinpath("static", "page.html")  # one file, no build step
# Inline code only, and answers of this service only: the page works offline and can send nothing away.
_PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}
SrcParam = Annotated[
    int | str, BeforeValidator(read_id), Query(description='a node id; 7 is the integer, "7" in quotes the text')
]
TimeParam = Annotated[
    int | float | str | None,
    BeforeValidator(lambda text: text if text is None else read_time(str(text))),
    Query(description="a number from 0 on or, where times are dates, an ISO date or now"),
]
RelationParam = Annotated[
    str | None, Query(max_length=schemas.MAX_ID, description="a relation by name or, where it has none, by number")
]
CandidatesParam = Annotated[
    Literal["destinations", "all"] | None, Query(description="who is ranked; by default what the run's card says")
]
WithinParam = Annotated[
    str | None,
    Query(
        max_length=40,
        description="a number or, where times are dates, as in 1h or 30d; by default a hundred mean gaps",
    ),
]
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.ErrorOut, "description": words}
    for status, words in {
        401: "wrong or missing token",
        413: "body over the limit",
        422: "a value that cannot be used; nothing was changed",
        429: "the queue is full",
        503: "the log or the state cannot take it now",
    }.items()
}


def build_application(service: Service, *, token: str | None = None, max_body: int = MAX_BODY) -> Gate:
    """The whole ASGI application around a service."""
    app = FastAPI(title="tsnn", version="1", docs_url=None, redoc_url=None, responses=ERRORS, description=_DESCRIPTION)
    _add_page(app)
    _add_events(app, service)
    _add_questions(app, service)
    _add_status(app, service)
    _add_errors(app)
    paths = frozenset(route.path for route in app.routes if hasattr(route, "path"))
    return Gate(app, service.metrics, paths, token, max_body)


_DESCRIPTION = (
    "Who meets whom next: send events, ask for scores. A score at time t sees every event with an earlier time, "
    "and never changes anything. Send the token, where one is set, as `Authorization: Bearer TOKEN`."
)


def _add_page(app: FastAPI) -> None:
    text = PAGE.read_text("utf-8")

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def page() -> HTMLResponse:
        return HTMLResponse(text, headers=_PAGE_HEADERS)


def _add_events(app: FastAPI, service: Service) -> None:
    parser = ThreadPoolExecutor(1, "parser")

    # The body is parsed here and not by FastAPI: nearly all requests come this way, and FastAPI's own parsing would
    # take longer than everything else that is done for them.
    @app.post("/events", summary="Observe events, all of them or none", response_model=schemas.EventsOut, **_EVENTS)
    async def events(request: Request) -> Response:
        body = await request.body()
        if len(body) <= SMALL_BODY:
            listed = schemas.read_events(body)
        else:  # others are answered meanwhile
            listed = await asyncio.get_running_loop().run_in_executor(parser, schemas.read_events, body)
        key = request.headers.get("idempotency-key")
        if not request.headers.get("content-type", "").startswith("application/json"):
            raise InputError("the body is not marked as JSON; send it with Content-Type: application/json.")
        done = service.submit(listed, None if key is None else schemas.read_key(key))
        told = await asyncio.wrap_future(done)
        return Response(told.model_dump_json(), media_type="application/json")


_KEY_HEADER = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "sending the same request again under the same key does nothing",
    "schema": {"type": "string", "minLength": 1, "maxLength": schemas.MAX_KEY},
}
_EVENTS: dict[str, Any] = {
    "openapi_extra": {
        "parameters": [_KEY_HEADER],
        "requestBody": {"required": True, "content": {"application/json": {"schema": schemas.events_schema()}}},
    }
}


def _add_questions(app: FastAPI, service: Service) -> None:
    @app.post("/score", summary="Score destinations")
    async def score(body: schemas.ScoreIn) -> schemas.ScoreOut:
        return await asyncio.wrap_future(service.answer(answers.score, body))

    @app.get("/recommend", summary="The best destinations of a source, best first")
    async def recommend(
        src: SrcParam,
        t: TimeParam = None,
        k: Annotated[int, Query(ge=1, le=MAX_TOP)] = 10,
        edge_type: RelationParam = None,
        exclude_seen: bool = False,
        exact: bool = True,
        candidates: CandidatesParam = None,
    ) -> schemas.RecommendOut:
        options = {"k": k, "edge_type": edge_type, "exclude_seen": exclude_seen, "candidates": candidates}
        return await asyncio.wrap_future(service.answer(answers.recommend, src, t, exact, options))

    @app.get("/forecast", summary="The sources, and the pairs, most likely to act within a length of time")
    async def forecast(
        within: WithinParam = None,
        top: Annotated[int, Query(ge=1, le=MAX_TOP)] = 20,
        t: TimeParam = None,
        pairs: Annotated[
            bool, Query(description="pairs as well; each source that is looked into takes as long as /recommend")
        ] = False,
    ) -> schemas.ForecastOut:
        return await asyncio.wrap_future(service.answer(answers.forecast, within, top, t, pairs))

    @app.get("/explain", summary="The parts of one score and what is behind them")
    async def explain(
        src: SrcParam, dst: SrcParam, t: TimeParam = None, edge_type: RelationParam = None
    ) -> dict[str, Any]:
        return await asyncio.wrap_future(service.answer(answers.explain, src, dst, t, edge_type))

    @app.get("/node", summary="The latest events of a node and the drift of its frame")
    async def node(id: SrcParam) -> schemas.NodeOut:
        return await asyncio.wrap_future(service.answer(answers.node, id, service.drift))


def _add_status(app: FastAPI, service: Service) -> None:
    @app.get("/health", summary="Where the service stands", responses={503: {"model": schemas.HealthOut}})
    async def health(response: Response) -> schemas.HealthOut:
        standing = answers.health(service)
        response.status_code = 200 if standing.status == "ok" else 503
        return standing

    @app.get("/health/live", summary="Whether the process answers; without a token")
    async def live() -> schemas.ProbeOut:
        return schemas.ProbeOut(status="ok")

    @app.get("/health/ready", summary="Whether it takes events and questions; without a token", responses=_PROBE)
    async def ready(response: Response) -> schemas.ProbeOut:
        is_ready = service.fault is None
        response.status_code = 200 if is_ready else 503
        return schemas.ProbeOut(status="ok" if is_ready else "not ready")

    @app.get("/metrics", summary="The same for Prometheus", response_class=Response, responses=_PLAIN)
    async def metrics() -> Response:
        answers.refresh_gauges(service)
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


_PROBE: dict[int | str, dict[str, Any]] = {503: {"model": schemas.ProbeOut}}
_PLAIN: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(RequestValidationError)
    async def unusable(_: Request, error: RequestValidationError) -> JSONResponse:
        return _sentence(422, schemas.first_fault(error.errors()[0]))

    @app.exception_handler(HTTPException)
    async def unknown(_: Request, error: HTTPException) -> JSONResponse:
        if error.status_code == 400:  # what FastAPI makes of a body that is not even text
            return _sentence(422, schemas.NOT_JSON)
        return _sentence(error.status_code, f"{str(error.detail).rstrip('.')}.", error.headers)

    @app.exception_handler(TsnnError)
    async def refused(_: Request, error: TsnnError) -> JSONResponse:
        status = 422 if isinstance(error, InputError) else 429 if isinstance(error, BusyError) else 503
        return _sentence(status, str(error), None if status == 422 else {"Retry-After": "1"})


def _sentence(status: int, sentence: str, headers: Any = None) -> JSONResponse:
    return JSONResponse({"error": sentence}, status, headers)
