"""What the states of a run are like, and how much of its scores they make.

States can be worth nothing while every figure looks fine: where nearly all their numbers are at their limits, where all
nodes have the same one, where frames have forgotten whose they are, or where the score does not listen to them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, softplus

from tsnn.data.queries import Share
from tsnn.evaluation.model import ModelScorer
from tsnn.evaluation.questions import Questions
from tsnn.evaluation.replay import Listener, Replayed
from tsnn.memory.store import StateStore
from tsnn.model.geometry import reflectors, rotate
from tsnn.model.head import KAPPA_MIN, ScoreParts
from tsnn.model.tsnn import TSNN
from tsnn.sheaf.householder import transport
from tsnn.types import F64, I64

LIMIT = 0.95  # a number of a stalk beyond it is as good as at its limit of 1
PAIRS = 2000  # of nodes that are compared
CANDIDATES = 50_000  # about so many, spread over the questions, say what scores are made of
BRANCHES = ("geometric", "residual", "edgebank")
_SEED = 0


@dataclass(frozen=True)
class Health:
    """The states of the nodes that have had an event, and shares of the score's variance; `MEASURES` explains each.

    A share is the covariance of a part with the score over the variance of the score, over candidates of all questions
    together, as AP compares them (a question of DGB has a single candidate). Those of the three branches add up to 1;
    one below 0 works against the others.
    """

    saturated: float
    cosine: float
    synchronized: float
    frames: float
    reflector: float
    turn: float
    kappa: float
    geometric: float
    residual: float
    edgebank: float
    states: float

    def to_dict(self) -> dict[str, float]:
        """As JSON would hold it."""
        return asdict(self)


class Measure(NamedTuple):
    """How people read one number of `Health`."""

    title: str
    says: str  # in a sentence
    is_share: bool = True  # shown per cent
    healthy: float | None = None  # it should be below

    def show(self, value: float) -> str:
        """A value as people read it."""
        return f"{100 * value:z.0f} %" if self.is_share else f"{value:z.3g}"

    @property
    def limit(self) -> str:
        """What is healthy, in words, where that can be said."""
        return "" if self.healthy is None else f"healthy below {self.show(self.healthy)}"


MEASURES = {
    "saturated": Measure(
        "saturated", f"Numbers of stalks beyond ±{LIMIT:g}, where they hardly move any more.", healthy=0.2
    ),
    "cosine": Measure(
        "cosine of stalks",
        "Between the stalks of two nodes, mean: at 1 all nodes have the same one, and no score tells them apart by it.",
        is_share=False,
        healthy=0.7,
    ),
    "synchronized": Measure(
        "cosine in common coordinates", "The same where a score compares them, turned by their frames.", is_share=False
    ),
    "frames": Measure(
        "cosine of frames",
        "Between the frames of two nodes, mean: near 0 each keeps its own, at 1 they have forgotten whose they are.",
        is_share=False,
    ),
    "reflector": Measure(
        "length of reflectors",
        "Mean. Only the direction counts: the longer it is, the less an event can turn it.",
        is_share=False,
    ),
    "turn": Measure(
        "turn of transport",
        "|Qx - x| / |x| for the transport Q between two nodes and a random x, mean: at 0 transport does nothing; "
        "frames as they are drawn give about 0.5 for two reflectors of 64 numbers.",
        is_share=False,
    ),
    "kappa": Measure(
        "kappa",
        "The scale that squared distances are divided by: the larger, the less the geometric branch says.",
        is_share=False,
    ),
    "geometric": Measure("score, geometric", "Its share in the variance of scores over candidates."),
    "residual": Measure("score, residual", "The same of the network on features, which reads geometry too."),
    "edgebank": Measure("score, EdgeBank", "The same of the memory of pairs."),
    "states": Measure(
        "score, due to states",
        "The geometric branch, and of the residual what goes where every candidate is given the average geometry.",
    ),
}


def in_a_line(health: dict[str, Any]) -> str:
    """The three that matter most."""
    told = {name: MEASURES[name].show(health[name]) for name in ("saturated", "cosine", "states")}
    return (
        f"states: {told['saturated']} saturated, cosine between nodes {told['cosine']}, "
        f"they make {told['states']} of the score's variance"
    )


class StateHealth(Listener):
    """Follows a model's replay; `measure` says what its states are like where it has ended."""

    def __init__(self, scorer: ModelScorer, questions: Questions) -> None:
        self.asked = questions.asked
        self._scorer = scorer
        self._stream = questions.split.stream
        self._part = CANDIDATES / max(int(self.asked.ptr[-1]), 1)
        self._rng = np.random.default_rng(_SEED)
        self._stop = 0
        self._parts: list[F64] = []

    def hear(self, seen: Replayed, own: Share) -> None:
        """Look at some questions of the block."""
        self._stop = seen.block.update.stop
        chosen = np.flatnonzero(self._rng.random(len(seen.block.score)) < self._part)
        if len(chosen):
            plan = seen.block.score.pick(chosen)
            self._parts.append(_parts(*self._scorer.with_average_geometry(plan, seen.versions, self._stream)))

    def measure(self) -> Health:
        """Everything at once; the same replay gives the same numbers."""
        store, model = self._scorer.store, self._scorer.model
        seen = np.unique(np.concatenate([self._stream.src[: self._stop], self._stream.dst[: self._stop]]))
        *covariances, variance = np.cov(np.concatenate(self._parts), rowvar=False, bias=True)[-1]
        geometric, residual, edgebank, by_states = np.array(covariances) / (variance or 1.0)
        return Health(
            **states_of(store, seen, model),
            kappa=KAPPA_MIN + float(softplus(model.head.weights().rho_kappa.detach())),
            geometric=float(geometric),
            residual=float(residual),
            edgebank=float(edgebank),
            states=float(geometric + by_states),
        )


@torch.no_grad()
def states_of(store: StateStore, nodes: I64, model: TSNN) -> dict[str, float]:
    """What random pairs of these nodes say of stalks, frames and the transport between them."""
    config = model.config.model
    rng = np.random.default_rng(_SEED)
    first = rng.integers(len(nodes), size=PAIRS)
    second = (first + 1 + rng.integers(max(len(nodes) - 1, 1), size=PAIRS)) % len(nodes)
    (h, F), (other_h, other_F) = ([part.double().cpu() for part in store.gather(nodes[at])] for at in (first, second))
    x = torch.from_numpy(rng.standard_normal(h.shape))
    used, other_used = reflectors(F, config), reflectors(other_F, config)
    turned = transport(x, frame_from=other_used, frame_to=used, eps=config.reflector_eps)
    common = [rotate(frame, stalk, config) for frame, stalk in ((F, h), (other_F, other_h))]
    return {
        "saturated": float((torch.cat([h, other_h]).abs() > LIMIT).double().mean()),
        "cosine": _mean_cosine(h, other_h),
        "synchronized": _mean_cosine(*common),
        "frames": _mean_cosine(F.flatten(1), other_F.flatten(1)),
        "reflector": float(torch.cat([F, other_F]).norm(dim=-1).mean()),
        "turn": float(((turned - x).norm(dim=-1) / x.norm(dim=-1)).mean()),
    }


def _mean_cosine(a: Tensor, b: Tensor) -> float:
    return float(cosine_similarity(a, b, dim=-1).mean())


def _parts(own: ScoreParts, average: ScoreParts) -> F64:
    """Of each candidate: the branches, what states add to the residual, the score."""
    parts = [own.geometric, own.residual, own.edgebank, own.residual - average.residual, own.total]
    table: F64 = torch.stack([part.double().cpu() for part in parts], dim=1).numpy()
    return table
