"""Answers from a predictor, in the form in which they travel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from tsnn.online.event import Time
from tsnn.online.predictor import Predictor
from tsnn.serve import schemas
from tsnn.serve.drift import DriftTrace
from tsnn.serve.service import Service

RECENT = 12
Name = int | str


def score(body: schemas.ScoreIn) -> Callable[[Predictor], schemas.ScoreOut]:
    """Scores of the destinations named."""

    def answer(predictor: Predictor) -> schemas.ScoreOut:
        t = predictor.question_time(body.t)
        scores = predictor.score(body.src, list(body.dst), t, body.edge_type)
        return schemas.ScoreOut(src=body.src, t=t, scores=scores)

    return answer


def recommend(src: Name, t: Time | None, exact: bool, **options: Any) -> Callable[[Predictor], schemas.RecommendOut]:
    """The best destinations; the options are those of `Predictor.recommend`."""

    def answer(predictor: Predictor) -> schemas.RecommendOut:
        at = predictor.question_time(t)
        found = predictor.recommend(src, at, exact=exact, **options)
        ranked = [schemas.Ranked(**asdict(entry)) for entry in found]
        return schemas.RecommendOut(src=src, t=at, known=predictor.knows(src), exact=exact, destinations=ranked)

    return answer


def explain(src: Name, dst: Name, t: Time | None, edge_type: int | None) -> Callable[[Predictor], dict[str, Any]]:
    """One score with its reasons."""

    def answer(predictor: Predictor) -> dict[str, Any]:
        at = predictor.question_time(t)
        return predictor.explain(src, dst, at, edge_type).to_dict()

    return answer


def node(name: Name, drift: DriftTrace) -> Callable[[Predictor], schemas.NodeOut]:
    """The latest events of a node and the drift of its frame."""

    def answer(predictor: Predictor) -> schemas.NodeOut:
        if not predictor.knows(name):
            return schemas.NodeOut(id=name, known=False, recent=[], drift=[])
        events: list[Any] = predictor.recent(name, RECENT)
        recent = [schemas.Recent(node=other, t=t, edge_type=relation) for other, t, relation in events]
        trace = [schemas.Drift(t=t, drift=d) for t, d in drift.of(predictor, predictor._state.ids.index(name))]
        return schemas.NodeOut(id=name, known=True, recent=recent, drift=trace)

    return answer


def health(service: Service) -> schemas.HealthOut:
    """Where the service stands."""
    predictor = service.predictor
    return schemas.HealthOut(
        status=service.fault or "ok",
        clock=predictor.clock,
        nodes=predictor.num_nodes,
        events=predictor.num_events,
        position=service.log.position,
        snapshot=service.snapshot_position,
        relations=predictor.run.model.shape.num_relations,
        queue=service.waiting,
        events_per_second=service.metrics.events_per_second(),
        latency_ms=service.metrics.latency_ms(),
    )


def refresh_gauges(service: Service) -> None:
    """Bring up to date what is only read when somebody looks."""
    metrics, predictor = service.metrics, service.predictor
    metrics.clock.set(predictor.clock)
    metrics.nodes.set(predictor.num_nodes)
    metrics.position.set(service.log.position)
    metrics.queue.set(service.waiting)
