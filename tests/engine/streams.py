"""Small streams with everything that trips an engine: ties, self-loops, repeats, unseen nodes, relations, features."""

from __future__ import annotations

import numpy as np

from tests.reference import naive
from tsnn.config import Config
from tsnn.data.description import Description
from tsnn.data.events import EventStream, NodeIds
from tsnn.data.queries import Queries, relations
from tsnn.data.question import asks
from tsnn.types import Visibility

NODES, EVENTS = 9, 26
TINY = {
    "model.stalk_dim": 6,
    "model.num_reflectors": 2,
    "model.hidden_dim": 7,
    "model.time_dim": 4,
    "model.relation_dim": 3,
    "model.type_dim": 2,
    "model.num_neighbors": 4,
    "model.score_dim": 8,
    "model.kappa": 2.0,
    "model.step_size": 0.2,
    "model.attention_heads": 2,
    "model.partners": False,
    "features.cn_neighbors": 5,
    "features.cn_decay": 3.0,
    "features.walks": False,  # float32 tables: parity at 1e-9 is for the rest, walks have a test of their own
    "features.walk_dim": 16,
    "features.walk_decay": 5.0,
    "train.dtype": "float64",
    "train.warmup": 0,
    "train.loss.geo": 0.3,
    "train.loss.bias": 0.2,
    "train.loss.smooth": 0.1,
    "train.loss.energy": 0.4,
}


def tricky_stream(
    seed: int = 0, *, relations: bool = False, types: bool = False, msg: bool = True, undirected: bool = False
) -> EventStream:
    """Nodes 7 and 8 first appear late; node 8 is only ever a candidate."""
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, 6, EVENTS), rng.integers(0, 6, EVENTS)
    dst[[3, 11]] = src[[3, 11]]  # self-loops
    src[[8, 9, 17]], dst[[8, 9, 17]] = src[7], dst[7]  # repeats
    src[18], dst[20] = 6, 7  # newcomers
    t = np.cumsum(rng.choice([0.0, 0.0, 1.0, 2.5], EVENTS))  # about half the rows share a time
    return EventStream(
        src,
        dst,
        t,
        NodeIds(range(NODES)),
        msg=rng.normal(size=(EVENTS, 2)).astype(np.float32) if msg else None,
        edge_type=rng.integers(0, 3, EVENTS) if relations else None,
        node_type=np.arange(NODES) % 2 if types else None,
        description=Description(undirected=undirected),
    )


def every_row(stream: EventStream, visibility: str, candidates: int = 3, seed: int = 1) -> Queries:
    """One query a row, two of an undirected one, the true destination first."""
    rng = np.random.default_rng(seed)
    asked = asks(stream, np.arange(stream.num_events))
    drawn = rng.integers(0, stream.num_nodes, (len(asked.rows), candidates - 1))
    drawn[::4, 0] = stream.num_nodes - 1
    cut = Visibility.parse(visibility).cuts(stream.t)[asked.rows]
    cand = np.concatenate([asked.dst[:, None], drawn], axis=1)
    ptr = np.arange(len(cut) + 1, dtype=np.int64) * candidates
    return Queries(cut, asked.src, stream.t[asked.rows], relations(stream, asked.rows), ptr, cand.ravel())


def config_of(**overrides: object) -> Config:
    """The tiny configuration, changed; keys are dotted names with __ for the dot."""
    return Config.build(overrides=TINY | {key.replace("__", "."): value for key, value in overrides.items()})


def oracle_config(config: Config) -> naive.NaiveConfig:
    return naive.NaiveConfig.build(
        config.model.model_dump(), config.features.model_dump(), config.train.loss.model_dump()
    )


def oracle_events(stream: EventStream) -> naive.NaiveEvents:
    return naive.NaiveEvents(
        stream.src,
        stream.dst,
        stream.t,
        stream.msg,
        stream.edge_type,
        stream.node_type,
        stream.num_nodes,
        stream.num_relations,
        stream.num_types,
        stream.undirected,
    )


def oracle_queries(queries: Queries, start: int, stop: int) -> list[naive.Query]:
    return [
        naive.Query(
            int(queries.cut[q]),
            int(queries.src[q]),
            float(queries.t[q]),
            int(queries.edge_type[q]),
            queries.cand[queries.ptr[q] : queries.ptr[q + 1]].tolist(),
        )
        for q in range(start, stop)
    ]
