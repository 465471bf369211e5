"""A trained model under the Scorer protocol: the same loop, cards and visibilities as every baseline."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from tsnn.data.events import EventStream
from tsnn.data.question import Question
from tsnn.data.split import Split
from tsnn.engine.engine import commit, make_store, pick_engine, run_update, score
from tsnn.errors import InputError
from tsnn.evaluation.scorer import Block
from tsnn.intensity.acts import Grid
from tsnn.memory.versions import Versions
from tsnn.model.head import ScoreParts, scalars
from tsnn.model.partners import COLUMNS
from tsnn.model.tsnn import TSNN, Compared
from tsnn.plan.chunk import ScorePlan
from tsnn.plan.planner import PlanSpec
from tsnn.types import F64

if TYPE_CHECKING:
    from tsnn.evaluation.against_all import Everyone, Here

COUNTS_ONLY = (
    "This run learned nothing beyond counts: its scores come from counts, gaps and paths alone, "
    "without states and frames."
)


VECTORS_ONLY = (
    "This run's states bring nothing: its scores come from counts, gaps, paths and what was learned of single nodes, "
    "without recurrence and frames."
)


def remark_of(model: TSNN) -> str:
    """What has to be known wherever a figure or an answer of a model is shown; mostly nothing."""
    if model.head.geometry_weight:
        return ""
    return VECTORS_ONLY if model.reads_partners else COUNTS_ONLY


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
        self.paces: Grid | None = None  # at which the plan counts what sources do; nothing without them
        self.parts: ScoreParts | None = None  # what the scores of the last block are made of

    @property
    def spec(self) -> PlanSpec:
        """What the model's configuration asks of the plan."""
        spec = self.model.plan_spec
        return spec if self.paces is None else self.paces.counted(spec)

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

    @property
    def against_all(self) -> Callable[[Here], Everyone] | None:
        """Scores all nodes at once; None with a column that needs more of each pair than distances and facts."""
        from tsnn.evaluation.model_against_all import ModelAgainstAll

        config = self.model.config
        needs_vectors = config.model.attention or config.features.transported_difference
        if needs_vectors or self.model.device.type != "cpu":
            return None
        return lambda here: ModelAgainstAll(self.model, self.store, here)

    @torch.no_grad()
    def with_average_geometry(
        self, plan: ScorePlan, versions: Versions, stream: EventStream
    ) -> tuple[ScoreParts, ScoreParts]:
        """What scores are made of, and what they were if all candidates had the average of the geometric columns."""
        model = self.model
        compared = self._engine.compare(model, versions, plan, None, None)
        own = compared.scalars
        if own is None:
            own = scalars(compared.geometry, model.head.weights().rho_kappa, model.config.model)
        average = Compared(
            compared.geometry, scalars=own.mean(0).expand_as(own), partners=own.new_zeros(len(own), COLUMNS)
        )
        data = model.data_features(plan)
        return model.decode(compared, plan, stream, data), model.decode(average, plan, stream, data)
