"""Facts as of a time, as a table: with a run, states and scores too.

A listener of the one replay writes the rows, block by block, so they are what training and evaluation see, bit for bit;
see docs/decisions/0023-facts-as-of-a-time.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import torch
from torch import Tensor

from tsnn.asof.sheet import NO_NEGATIVES, Columns, EventSheet, Negatives, NodeSheet, Sheet, row_sheet
from tsnn.config import Config, FeatureConfig
from tsnn.data.events import EventStream
from tsnn.data.queries import Share
from tsnn.data.question import Question
from tsnn.data.split import Split
from tsnn.errors import ConfigError, InputError
from tsnn.evaluation.baselines import Stateless
from tsnn.evaluation.card import data_card, split_card, versions
from tsnn.evaluation.catalog import Data
from tsnn.evaluation.model import ModelScorer
from tsnn.evaluation.replay import Listener, Replayed, replay
from tsnn.evaluation.scorer import MAX_ROWS, Block
from tsnn.files import check_file_target, write_whole
from tsnn.memory.versions import Versions
from tsnn.model.geometry import rotate
from tsnn.model.tsnn import TSNN
from tsnn.plan.facts import FACTS, Fact
from tsnn.plan.planner import PlanSpec, mean_gap
from tsnn.progress import watched
from tsnn.training.run import Run, split_like
from tsnn.types import F64, I32, Progress, Visibility, Watch, unwatched

METADATA = b"tsnn.facts"  # under which a table of facts says what it holds under
ROW_GROUP = 100_000
_ROWS_WITHOUT_STATES = 20_000  # of the stream per block
Sink = Callable[[pa.Table], None]


def facts(
    data: Data | Split,
    *,
    at: Any = None,
    events: Any = None,
    run: str | Path | Run | None = None,
    negatives: int = 0,
    visibility: str | Visibility = "strict",
    seed: int = 0,
    progress: Watch = True,
    **columns: Any,
) -> pa.Table:
    """What was known at a time, as an Arrow table (`.to_pandas()`, `polars.from_arrow`): one row a question.

    Without more, every event of the data is a question, as of just before it; `negatives` others are drawn for each,
    with `label` 1 for the event and 0 for them, and `query` for what belongs together. `events` is a table of one's own
    with src, dst and t, at any times, which comes back with the facts beside it. `at` alone asks about all nodes as of
    that time; with `events` it is the time of all of them. A `run` adds its states and its score. A gap to an event
    that never was is null. `columns` say how a frame or a table is read, as in `tsnn.train`.
    """
    own = None if run is None else Run.of(run)
    split = split_like(data, own, **columns)
    with watched(progress) as show:
        return as_of(split, at, events, own, Negatives(negatives, seed), visibility).table(show)


@dataclass(frozen=True)
class AsOf:
    """A sheet of questions, and all that it takes to answer them."""

    scorer: ModelScorer | Counts
    stream: EventStream
    sheet: Sheet
    features: FeatureConfig  # which facts there are
    card: dict[str, Any]

    def table(self, progress: Progress = unwatched) -> pa.Table:
        """All answers, in memory."""
        parts: list[pa.Table] = []
        self._replay(parts.append, progress)
        whole = pa.concat_tables(parts)
        return whole if self.sheet.order is None else whole.take(pa.array(np.argsort(self.sheet.order)))

    def write(self, out: Path, progress: Progress = unwatched) -> int:
        """The same as a Parquet or CSV file, which holds all or nothing; returns the number of rows.

        No more than a row group is kept in memory, unless the questions come in another order than that of time.
        """
        open_writer = writer_of(out)
        check_file_target(out)
        rows = 0

        def fill(partial: Path) -> None:
            nonlocal rows
            with _row_groups(lambda schema: open_writer(partial, schema)) as sink:

                def write(part: pa.Table) -> None:
                    nonlocal rows
                    rows += part.num_rows
                    sink(part)

                if self.sheet.order is None:
                    self._replay(write, progress)
                else:
                    write(self.table(progress))

        write_whole(out, fill)
        return rows

    def _replay(self, sink: Sink, progress: Progress) -> None:
        listener = _Answers(self, sink)
        max_rows = _ROWS_WITHOUT_STATES
        if isinstance(self.scorer, ModelScorer):
            max_rows = MAX_ROWS
            torch.set_num_threads(1)  # the other core plans ahead
        replay(self.scorer, self.stream, [listener], max_rows=max_rows, progress=progress, text="looking back")


def as_of(
    split: Split,
    at: Any = None,
    events: Any = None,
    own: Run | None = None,
    negatives: Negatives = NO_NEGATIVES,
    visibility: str | Visibility = "strict",
) -> AsOf:
    """Questions and who answers them, where `own` is the run; the other words are those of `facts`."""
    visibility = visibility if isinstance(visibility, Visibility) else Visibility.parse(visibility)
    if negatives.per_event < 0:
        raise InputError(f"negatives is {negatives.per_event}; draw none or more for each event.")
    if negatives.per_event and (at is not None or events is not None):
        raise ConfigError("negatives are drawn for the events of the data; leave out either them or the questions.")
    question = replace(Question() if own is None else own.question, visibility=visibility).about(split.stream)
    stream, time = split.stream, None if at is None else split.stream.description.parse_time(at)
    sheet: Sheet
    if events is not None:
        stream, sheet, strangers = row_sheet(stream, events, time, visibility)
        _check_strangers(strangers, split.stream, own)
    elif time is not None:
        sheet, strangers = NodeSheet(stream, time, visibility), []
    else:
        sheet, strangers = EventSheet(split, question, negatives), []
    gap = mean_gap(stream.t[: split.train_end]) if own is None else own.model.shape.mean_gap
    features = Config().features if own is None else own.config.features
    card = {
        "data": data_card(split.stream),
        "split": split_card(split),
        "question": question.to_card(),
        "run": None if own is None else str(own.folder),
        "negatives": {"per_event": negatives.per_event, "seed": negatives.seed},
        "mean_gap": gap,
        "strangers": len(strangers),
        "versions": versions(),
    }
    scorer = Counts(gap) if own is None else ModelScorer(own.model, stream)
    return AsOf(scorer, stream, sheet, features, card)


def _check_strangers(strangers: Sequence[Any], stream: EventStream, run: Run | None) -> None:
    if strangers and stream.node_type is not None and run is not None:
        raise InputError(
            f"node {strangers[0]!r} does not occur in {stream.name}, so it has no type, which the run needs; "
            "leave it out, or ask without a run."
        )


class Counts(Stateless):
    """Nobody's scores: the facts that a run has by default, planned without its states."""

    name = "facts"

    def __init__(self, gap: float) -> None:
        self.spec = PlanSpec.of(Config(), gap).without_states()

    def score(self, plan: Block, versions: None) -> F64:
        """Nothing to say."""
        return np.zeros(len(plan.score.cand))


# The answers, block by block


class _Answers(Listener):
    """Makes a part of the table of every block."""

    def __init__(self, wanted: AsOf, sink: Sink) -> None:
        self.asked = wanted.sheet.asked
        self._wanted, self._sink = wanted, sink
        self._facts = facts_of(wanted.features, wanted.sheet.about)
        words = {fact.name: fact.says.format(src="the source", dst="the candidate") for fact in self._facts}
        self._says = {name: {"says": says} for name, says in words.items()}
        self._metadata = {METADATA: json.dumps(wanted.card)}

    def hear(self, seen: Replayed, own: Share) -> None:
        """Columns of the sheet, then facts, then states and score; nobody else asks in this replay."""
        if own.first == own.last:
            return
        columns = self._wanted.sheet.beside(seen.block.queries, own.first, own.last)
        answers = {fact.name: fact_column(fact, seen.fact(fact.name)) for fact in self._facts}
        if isinstance(self._wanted.scorer, ModelScorer):
            answers |= self._of_run(self._wanted.scorer.model, seen)
        taken = next((name for name in columns if name in answers), None)
        if taken is not None:
            raise InputError(f"the questions have a column {taken!r}, which is also the name of an answer; rename it.")
        columns |= answers
        fields = [pa.field(name, array.type, metadata=self._says.get(name)) for name, array in columns.items()]
        self._sink(pa.table(list(columns.values()), schema=pa.schema(fields, metadata=self._metadata)))

    def _of_run(self, model: TSNN, seen: Replayed) -> Columns:
        """States in synchronized coordinates, and the score of pairs."""
        plan, versions = seen.block.score, seen.versions
        other = _states(model, versions, plan.cand_h, plan.cand_F)
        if self._wanted.sheet.about == "node":
            return _numbered("state", other)
        own = _states(model, versions, plan.src_h, plan.src_F).repeat(np.diff(plan.ptr), axis=0)
        return {"score": pa.array(seen.scores), **_numbered("src_state", own), **_numbered("dst_state", other)}


def facts_of(features: FeatureConfig, about: str) -> list[Fact]:
    """The facts of a configuration; about a single node, those that a candidate has by itself."""
    on = [fact for fact in FACTS if not fact.block or getattr(features, fact.block)]
    return [fact for fact in on if about == "pair" or ("{dst}" in fact.says and "{src}" not in fact.says)]


def fact_column(fact: Fact, values: F64) -> pa.Array:
    """A fact as it is; where its value says that something never was, null."""
    return pa.array(values, mask=values < 0 if fact.unseen < 0 else None)


@torch.no_grad()
def _states(model: TSNN, versions: Versions, rows_h: I32, rows_F: I32) -> Any:
    """U h of these versions (prop:sync_equiv), which may be compared number by number, whoever's and whenever."""
    h, F = _rows(versions.h, rows_h), _rows(versions.F, rows_F)
    return rotate(F, h, model.config.model).cpu().numpy()


def _rows(log: Tensor, rows: I32) -> Tensor:
    return log[torch.from_numpy(rows.astype(np.int64)).to(log.device)]


def _numbered(name: str, table: Any) -> Columns:
    return {f"{name}_{i}": pa.array(column) for i, column in enumerate(np.ascontiguousarray(table.T))}


# Files


def writer_of(out: Path) -> Callable[[Path, pa.Schema], Any]:
    """What writes files with such an ending."""
    if out.suffix in (".parquet", ".pq"):
        return pq.ParquetWriter  # type: ignore[no-any-return]
    if out.suffix == ".csv":
        return pa_csv.CSVWriter  # type: ignore[no-any-return]
    raise InputError(f"{out} is of no known kind; let its name end in .parquet or .csv.")


@contextmanager
def _row_groups(open_writer: Callable[[pa.Schema], Any]) -> Iterator[Sink]:
    """Parts in, row groups of a decent size out; the file is opened when its first part says what is in it."""
    waiting: list[pa.Table] = []
    writer: Any = None

    def flush() -> None:
        nonlocal writer
        group = pa.concat_tables(waiting).combine_chunks()
        writer = writer or open_writer(group.schema)
        writer.write_table(group, ROW_GROUP)
        waiting.clear()

    def take(part: pa.Table) -> None:
        waiting.append(part)
        if sum(own.num_rows for own in waiting) >= ROW_GROUP:
            flush()

    try:
        yield take
        if waiting:
            flush()
    finally:
        if writer is not None:
            writer.close()
