"""Labels of events, told from what was known just before them: small heads on facts, states and the event's message.

Dynamic node classification as the field does it (JODIE, TGN, DyGLib): a label says how the source is after an event,
such as banned after an edit; the network is trained on links alone, and a small head on its states on labels. Here the
same head is also given less, to show what states are worth beside counts and beside the message alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.stats import rankdata

from tsnn.asof.facts import as_of, facts_of
from tsnn.data.events import EventStream
from tsnn.data.question import Question
from tsnn.data.split import SEGMENTS, Split, split_by_time
from tsnn.data.table import read_table
from tsnn.errors import ConfigError, InputError
from tsnn.evaluation.card import UPDATES, Card, Result, data_card, split_card, versions
from tsnn.evaluation.catalog import load, suite_of
from tsnn.evaluation.metrics import roc_auc
from tsnn.model.features import feature_matrix
from tsnn.plan.facts import COLUMN, FACTS
from tsnn.training.run import Run
from tsnn.types import F64, Bool, Progress, Visibility, unwatched

Matrix = NDArray[np.float32]
SEEDS = 3
OTHERS = 20  # events of the other kind for each labeled one that a head is trained on; AUC does not mind their share
SHARES = {
    "message": "the event's own message, which comes with the label",
    "facts": "what counts and gaps say of source and destination just before it",
    "state": "the source's state just before it",
    "states": "both states",
}
INPUTS = (
    ("message",),
    ("facts",),
    ("facts", "message"),
    ("state",),
    ("states", "facts"),
    ("states", "facts", "message"),
)
AGGREGATION = (
    f"AUC over all events of a set, mean over {SEEDS} draws of training events; the interval of 95 % by DeLong's "
    "variance, as if events were independent"
)


def label(
    run: str | Path | Run,
    stream: EventStream,
    labels: NDArray[Any],
    visibility: str | Visibility = "strict",
    progress: Progress = unwatched,
) -> list[Result]:
    """How well heads tell events labeled 1 from those labeled 0, one result for each set of inputs.

    Everything but the message is as of just before the event. Trained on the first 70 % of the events, chosen on the
    next 15 %, reported on the last; all rows of the stream take part, whatever a suite's own split leaves out.
    """
    run = Run.of(run)
    visibility = visibility if isinstance(visibility, Visibility) else Visibility.parse(visibility)
    if stream.undirected:
        raise ConfigError("a label is the source's, and undirected events have none; read the table without direction.")
    split = split_by_time(stream)
    truth = _checked(labels, split)
    table = as_of(split, own=run, visibility=visibility).table(progress)
    shares = _shares(table, stream, run)
    sets = [names for names in INPUTS if all(name in shares for name in names)]
    results = []
    for done, names in enumerate(sets):
        called = " + ".join(names)
        progress(done, len(sets), f"heads on {called}")
        inputs = np.concatenate([shares[name] for name in names], axis=1)
        head, figures = _best_head(inputs, truth, split)
        card = _card(split, run, visibility, truth, [f"inputs: {'; '.join(SHARES[name] for name in names)}", head])
        results.append(Result(called, stream.name, figures, card))
    progress(len(sets), len(sets), "heads")
    return results


def load_labeled(address: str, column: str, run: Run, **table: Any) -> tuple[EventStream, NDArray[Any]]:
    """The stream at an address, and a column of labels in the rows of its events."""
    suite = suite_of(address)
    if suite.labels is not None:
        return load(address, run.description, **table), suite.labels(address.partition(":")[2], column)
    if suite.name:
        raise InputError(f"{address} comes without labels; name a set of dgb or the path of a table.")
    roles = run.description.roles
    features = table.get("msg") or (roles.msg if roles else ())
    if features == "auto" or column in features:
        raise InputError(f"the run reads {column!r} as a feature of events; train one that does not, naming its --msg.")
    told = {**table, "msg": (*features, column)}  # read as a feature, so that it goes along when rows are left out
    stream = read_table(address, like=run.description, **told)
    assert stream.msg is not None
    rest = stream.msg[:, :-1]
    return replace(stream, msg=rest if rest.shape[1] else None), stream.msg[:, -1]


def _checked(labels: NDArray[Any], split: Split) -> Bool:
    """Labels as truth values; every segment needs both."""
    if len(labels) != split.stream.num_events or not np.isin(labels, (0, 1)).all():
        raise InputError("labels must be 0 or 1, one for each event; write a column with nothing else.")
    truth: Bool = np.asarray(labels) == 1
    for name in SEGMENTS:
        own = truth[slice(*split.bounds(name))]
        if own.all() or not own.any():
            raise InputError(f"all {len(own):,} {name} events have one label; give data with both in every segment.")
    return truth


def _shares(table: pa.Table, stream: EventStream, run: Run) -> dict[str, Matrix]:
    """What a head may be given, by name."""
    features = run.config.features
    raw = np.zeros((table.num_rows, len(FACTS)))
    for fact in facts_of(features, "pair"):
        raw[:, COLUMN[fact.name]] = table[fact.name].fill_null(fact.unseen).to_numpy()
    facts = feature_matrix(raw, features, gaps="log", mean_gap=run.model.shape.mean_gap)
    source, destination = (_beside(table, f"{side}_state_") for side in ("src", "dst"))
    shares = {"facts": facts.astype(np.float32), "state": source}
    shares["states"] = np.concatenate([source, destination], axis=1)
    return shares if stream.msg is None else shares | {"message": np.asarray(stream.msg)}


def _beside(table: pa.Table, prefix: str) -> Matrix:
    names = [name for name in table.column_names if name.startswith(prefix)]
    return np.stack([table[name].to_numpy() for name in names], axis=1).astype(np.float32)


# Heads


@dataclass(frozen=True)
class _Head:
    """A small classifier, by what it is called."""

    name: str
    make: Callable[[int], Any]  # of a seed


def _linear(strength: float) -> Callable[[int], Any]:
    def make(seed: int) -> Any:
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        return make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=1000))

    return make


def _trees(seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(learning_rate=0.05, max_leaf_nodes=8, random_state=seed)


HEADS = (
    _Head("logistic, C 0.001", _linear(1e-3)),
    _Head("logistic, C 0.1", _linear(0.1)),
    _Head("boosted trees", _trees),
)


def _best_head(inputs: Matrix, truth: Bool, split: Split) -> tuple[str, dict[str, dict[str, float]]]:
    """The head with the best validation AUC, and its figures."""
    found = {head.name: [_scores(head, inputs, truth, split, seed) for seed in range(SEEDS)] for head in HEADS}
    start, end = split.bounds("val")

    def validation(name: str) -> float:
        return float(np.mean([_auc(scores, truth, start, end) for scores in found[name]]))

    best = max(found, key=validation)
    figures = {}
    for name in SEGMENTS:
        bounds = split.bounds(name)
        aucs = [_auc(scores, truth, *bounds) for scores in found[best]]
        errors = [auc_error(*_by_label(scores, truth, *bounds)) for scores in found[best]]
        figures[name] = {"auc": float(np.mean(aucs)), "spread": float(np.std(aucs)), "half_width": 196 * max(errors)}
    return best, figures


def _scores(head: _Head, inputs: Matrix, truth: Bool, split: Split, seed: int) -> F64:
    """Scores of all events by a head that was trained on some: all of the rarer label, others drawn by the seed."""
    train = truth[: split.train_end]
    few, many = sorted((np.flatnonzero(train), np.flatnonzero(~train)), key=len)
    drawn = np.random.default_rng(seed).choice(many, min(len(many), OTHERS * len(few)), replace=False)
    rows = np.sort(np.concatenate([few, drawn]))
    fitted = head.make(seed).fit(inputs[rows], truth[rows])
    scores: F64 = fitted.predict_proba(inputs)[:, 1]
    return scores


def _by_label(scores: F64, truth: Bool, start: int, end: int) -> tuple[F64, F64]:
    own, is_one = scores[start:end], truth[start:end]
    return own[is_one], own[~is_one]


def _auc(scores: F64, truth: Bool, start: int, end: int) -> float:
    return 100 * roc_auc(*_by_label(scores, truth, start, end))


def auc_error(pos: F64, neg: F64) -> float:
    """Standard error of an AUC (DeLong): how much it would change with other events of the same kind."""
    both = rankdata(np.concatenate([pos, neg]))
    above = (both[: len(pos)] - rankdata(pos)) / len(neg)
    below = 1 - (both[len(pos) :] - rankdata(neg)) / len(pos)
    parts = (share.var(ddof=1) / len(share) if len(share) > 1 else np.inf for share in (above, below))
    return float(np.sqrt(sum(parts)))


def _card(split: Split, run: Run, visibility: Visibility, truth: Bool, notes: list[str]) -> Card:
    question = replace(run.question, visibility=visibility)
    return Card(
        protocol="label",
        data=data_card(split.stream),
        split=split_card(split),
        question=_asked(question),
        visibility=str(visibility),
        updates=UPDATES[visibility.kind] + "; the state runs on through train, validation and test",
        negatives={"strategy": "the events labeled 0", "per_positive_in_training": OTHERS},
        aggregation=AGGREGATION,
        versions=versions(),
        notes=notes,
        positives={name: int(truth[slice(*split.bounds(name))].sum()) for name in SEGMENTS},
    )


def _asked(question: Question) -> dict[str, Any]:
    return {**question.to_card(), "of": "the label of an event, from what is known just before it"}
