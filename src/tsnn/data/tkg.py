"""Temporal knowledge graphs: facts (subject, relation, object, time) with a published split.

Each fact is two rows of the stream, one after the other: (s, r, o, t), and (o, r + R, s, t) for the inverse of the
relation. So each node has a past and a state as subject and as object, and "who did this to o?" is a question about o.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from tsnn.data.csv_file import read_csv
from tsnn.data.events import EventStream, NodeIds, make_stream
from tsnn.data.split import SEGMENTS
from tsnn.data.table import open_table
from tsnn.data.tgb import find_file, first_appearance, whole_numbers
from tsnn.errors import InputError
from tsnn.types import I64

COLUMNS = ("src", "dst", "t", "edge_type", "split")
FILES = ("train.txt", "valid.txt", "test.txt")  # of a folder as this field shares them
INVERSE = "inverse of "
TKGL = {  # temporal knowledge graphs of TGB that are ranked among all nodes, with their shares of validation and test
    "tkgl-smallpedia": (0.15, 0.15),
    "tkgl-polecat": (0.15, 0.15),
    "tkgl-icews": (0.15, 0.15),
    "tkgl-yago": (0.1, 0.1),
}
_NAMES = {"train": 0, "val": 1, "valid": 1, "validation": 1, "test": 2}


def is_folder(folder: Path) -> bool:
    """Whether a folder has the three files of a split."""
    return all((folder / name).is_file() for name in FILES)


def load_tkg(path: Path, name: str) -> EventStream:
    """The stream of a table with columns src, dst, t, edge_type and split, or of a folder with the three files."""
    columns = _read_folder(path) if path.is_dir() else _read_table(path)
    segment = _segments(columns["split"], path)
    order = np.lexsort([columns["t"], segment])
    src, dst, t, edge_type = (columns[label][order] for label in COLUMNS[:-1])
    sizes = np.bincount(segment, minlength=3)
    ends = (int(sizes[0]), int(sizes[:2].sum()))
    _check_order(t, ends, path)
    return with_inverses(src, dst, t, edge_type, ends, name)


def with_inverses(
    src: NDArray[Any],
    dst: NDArray[Any],
    t: NDArray[Any],
    edge_type: NDArray[Any],
    ends: tuple[int, int],
    name: str,
    ids: NodeIds | None = None,
) -> EventStream:
    """The stream of facts in order of time; validation and test begin at `ends`, counted in facts."""
    both = make_stream(src, dst, t, edge_type=edge_type, name=name, ids=ids)
    assert both.edge_type is not None
    relations = both.num_relations
    stream = replace(
        both,
        src=_alternate(both.src, both.dst),
        dst=_alternate(both.dst, both.src),
        t=np.repeat(both.t, 2),
        edge_type=_alternate(both.edge_type, both.edge_type + relations),
        ends=(2 * ends[0], 2 * ends[1]),
    )
    names = both.description.relations
    doubled = (*names, *(f"{INVERSE}{relation}" for relation in names))
    return replace(stream, description=replace(both.description, relations=doubled))


def find_tkgl(folder: Path) -> Path | None:
    """The edge list of one of TGB's temporal knowledge graphs, if the folder is one's and it is there."""
    name = folder.name.replace("_", "-")
    return find_file(folder, f"{name}_edgelist.csv") if name in TKGL else None


def load_tkgl(folder: Path, name: str) -> EventStream:
    """TGB's `tkgl-*`, read as py-tgb reads it: nodes are numbered as they appear, a line's head before its tail."""
    path = find_tkgl(folder)
    if path is None:
        raise InputError(f"{folder} holds no events; put {folder.name.replace('_', '-')}_edgelist.csv there.")
    table = read_csv(path, header=False)
    if table.num_columns < 4 or not table.num_rows:
        raise InputError(f"{path} has no lines of timestamp, head, tail and relation; fetch it again.")
    when, head, tail, relation = table.columns[:4]
    t = whole_numbers(when, "time")
    order = np.argsort(t, kind="stable")
    ids, src, dst = first_appearance(head, tail)
    twice = np.repeat(t[order], 2).astype(np.float64)  # as its quantiles are taken: of facts and inverses
    val, test = TKGL[folder.name.replace("_", "-")]
    ends = np.searchsorted(twice, np.quantile(twice, [1 - val - test, 1 - test]), side="right") // 2
    if not 0 < ends[0] < ends[1] < len(t):
        raise InputError(f"{path} has too few times for a split; fetch it again.")
    kinds = np.asarray(relation.to_numpy())
    return with_inverses(src[order], dst[order], t[order], kinds[order], (int(ends[0]), int(ends[1])), name, ids)


def _alternate(own: I64, inverse: I64) -> I64:
    return np.stack([own, inverse], axis=1).ravel()


def _read_table(path: Path) -> dict[str, NDArray[Any]]:
    table = open_table(path)
    missing = [label for label in COLUMNS if label not in table]
    if missing:
        raise InputError(
            f"{path} has no column {missing[0]!r}; a temporal knowledge graph needs {', '.join(COLUMNS)}, where split "
            "says train, val or test."
        )
    return {label: table[label] for label in COLUMNS}


def _read_folder(folder: Path) -> dict[str, NDArray[Any]]:
    if not is_folder(folder):
        raise InputError(f"{folder} lacks one of {', '.join(FILES)}; give a folder with all three, or a table.")
    parts = [_read_facts(folder / name) for name in FILES]
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    split = np.repeat(np.array(SEGMENTS), [len(part[0]) for part in parts])
    src, edge_type, dst, t = columns
    return {"src": src, "dst": dst, "t": t, "edge_type": edge_type, "split": split}


def _read_facts(path: Path) -> Sequence[NDArray[Any]]:
    """Subject, relation, object and time of a file without a header, between tabs; further columns say nothing."""
    read = pa_csv.ReadOptions(autogenerate_column_names=True, use_threads=False)
    try:
        table = pa_csv.read_csv(str(path), read, pa_csv.ParseOptions(delimiter="\t"))
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise InputError(f"{path} cannot be read ({reason}); it needs lines of s, r, o and t between tabs.") from None
    if table.num_columns < 4:
        raise InputError(f"{path} has {table.num_columns} columns; it needs s, r, o and t between tabs.")
    return [np.asarray(table.column(i).to_numpy()) for i in range(4)]


def _segments(labels: NDArray[Any], path: Path) -> I64:
    told = [str(label).strip().lower() for label in labels.tolist()]
    strange = next((label for label in told if label not in _NAMES), None)
    if strange is not None:
        raise InputError(f"column 'split' of {path} says {strange!r}; it may say train, val (or valid) and test.")
    segment = np.array([_NAMES[label] for label in told], np.int64)
    absent = [name for i, name in enumerate(SEGMENTS) if not (segment == i).any()]
    if absent:
        raise InputError(f"{path} has no {absent[0]} rows; the split needs all three segments.")
    return segment


def _check_order(t: NDArray[Any], ends: tuple[int, int], path: Path) -> None:
    """A split that is not one in time would let a score see what it is asked."""
    for name, end in zip(SEGMENTS[1:], ends, strict=True):
        if not t[end - 1] < t[end]:
            raise InputError(
                f"the {name} rows of {path} begin at {t[end]}, not after {t[end - 1]}, where the rows before them end; "
                "give a split in time."
            )
