"""A trained model under the Scorer protocol: the same loop, cards and visibilities as every baseline."""

from __future__ import annotations

import torch

from tsnn.data.events import EventStream
from tsnn.data.question import Question
from tsnn.data.split import Split
from tsnn.engine.engine import commit, make_store, pick_engine, run_update, score
from tsnn.errors import InputError
from tsnn.evaluation.scorer import Block
from tsnn.memory.versions import Versions
from tsnn.model.head import ScoreParts
from tsnn.model.tsnn import TSNN
from tsnn.plan.planner import PlanSpec
from tsnn.types import F64


class ModelScorer:
    """Frozen weights and a store of its own; replaying a stream through it rebuilds the states from nothing."""

    name = "tsnn"

    def __init__(self, model: TSNN, stream: EventStream) -> None:
        shape = (model.shape.msg_dim, model.shape.num_relations, model.shape.num_types)
        if stream.msg_dim != shape[0] or stream.num_relations > shape[1] or stream.num_types > shape[2]:
            raise InputError(
                f"the run was trained with {shape[0]} features, {shape[1]} relations and {shape[2]} node types; "
                f"the data has {stream.msg_dim}, {stream.num_relations} and {stream.num_types}; give it the same kind."
            )
        if stream.undirected != model.shape.undirected:
            trained = "undirected" if model.shape.undirected else "directed"
            raise InputError(
                f"the run was trained on {trained} events and the data are {stream.direction}; "
                "undirected data are read with --undirected, in Python with undirected=True."
            )
        self.model, self._engine = model, pick_engine(model.config.train.engine, model.device)
        self.store = make_store(model, self._engine, stream.ids.keys)
        self.parts: ScoreParts | None = None  # what the scores of the last block are made of

    @property
    def spec(self) -> PlanSpec:
        """What the model's configuration asks of the plan."""
        return PlanSpec.of(self.model.config, self.model.shape.mean_gap)

    def fit(self, split: Split, question: Question) -> None:
        """Nothing: the weights were learned by `tsnn train`."""

    def reset_state(self) -> None:
        """Forget every event."""
        self.store.reset_state()

    @torch.no_grad()
    def update(self, plan: Block) -> Versions:
        """Run the block's rows and keep their last states."""
        versions = run_update(self.model, self._engine, self.store, plan.update, plan.stream)
        commit(self.store, plan.update, versions)
        return versions

    @torch.no_grad()
    def score(self, plan: Block, versions: Versions) -> F64:
        """Scores from the block's versions."""
        self.model.eval()
        self.parts = score(self.model, self._engine, versions, plan.score, plan.stream).parts
        values: F64 = self.parts.total.double().cpu().numpy()
        return values
