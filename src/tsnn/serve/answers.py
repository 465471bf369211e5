"""Answers to the questions that arrive over HTTP. Those that read the predictor are called under the service's lock."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tsnn.online.event import AnyTime, Relation
from tsnn.online.predictor import Predictor
from tsnn.serve import schemas
from tsnn.serve.drift import DriftTrace
from tsnn.serve.service import Service

RECENT = 12  # events of a node that the page lists
Name = int | str


def score(predictor: Predictor, body: schemas.ScoreIn) -> schemas.ScoreOut:
    """Scores of the destinations named."""
    t = predictor.question_time(body.t)
    scores = predictor.score(body.src, list(body.dst), t, body.edge_type)
    return schemas.ScoreOut(src=body.src, t=predictor.run.description.show_time(t), scores=scores)


def recommend(
    predictor: Predictor, src: Name, t: AnyTime | None, exact: bool, options: dict[str, Any]
) -> schemas.RecommendOut:
    """The best destinations; `options` are further ones of `Predictor.recommend`."""
    at = predictor.question_time(t)
    found = predictor.recommend(src, at, exact=exact, **options)
    ranked = [schemas.Ranked(**asdict(entry)) for entry in found]
    shown = predictor.run.description.show_time(at)
    return schemas.RecommendOut(src=src, t=shown, known=predictor.knows(src), exact=exact, destinations=ranked)


def forecast(predictor: Predictor, within: str | None, top: int, t: AnyTime | None, pairs: bool) -> schemas.ForecastOut:
    """The sources, and if wanted the pairs, most likely to act."""
    found = predictor.forecast(within, top, predictor.question_time(t), pairs)
    return schemas.ForecastOut.model_validate(asdict(found))


def explain(
    predictor: Predictor, src: Name, dst: Name, t: AnyTime | None, edge_type: Relation | None
) -> dict[str, Any]:
    """One score with its reasons."""
    return predictor.explain(src, dst, predictor.question_time(t), edge_type).to_dict()


def node(predictor: Predictor, name: Name, drift: DriftTrace) -> schemas.NodeOut:
    """The latest events of a node and the drift of its frame."""
    if not predictor.knows(name):
        return schemas.NodeOut(id=name, known=False, recent=[], drift=[])
    shown = predictor.run.description.show_time
    events: list[Any] = predictor.recent(name, RECENT)
    recent = [schemas.Recent(node=other, t=shown(t), edge_type=relation) for other, t, relation in events]
    samples = drift.of(predictor, predictor._state.ids.index(name))
    drifts = [schemas.Drift(t=shown(t), drift=far) for t, far in samples]
    return schemas.NodeOut(id=name, known=True, recent=recent, drift=drifts)


def health(service: Service) -> schemas.HealthOut:
    """Where the service stands."""
    predictor = service.predictor
    return schemas.HealthOut(
        status=service.fault or "ok",
        clock=predictor.run.description.show_time(predictor.ticks),
        nodes=predictor.num_nodes,
        events=predictor.num_events,
        position=service.log.position,
        snapshot=service.snapshot_position,
        relations=predictor.run.model.shape.num_relations,
        relation_names=list(predictor.run.description.relations),
        queue=service.waiting,
        events_per_second=service.metrics.events_per_second(),
        latency_ms=service.metrics.latency_ms(),
    )


def refresh_gauges(service: Service) -> None:
    """Bring up to date the gauges, which are only set when somebody reads them."""
    metrics = service.metrics
    metrics.clock.set(service.predictor.ticks)
    metrics.nodes.set(service.predictor.num_nodes)
    metrics.position.set(service.log.position)
    metrics.queue.set(service.waiting)
