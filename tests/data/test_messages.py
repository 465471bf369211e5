"""Messages of every kind: what cells become, what is learned of training rows alone, what live events may say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tsnn
from tsnn.config import Config
from tsnn.data.description import CODE, Description, MessageColumn
from tsnn.data.split import split_by_time
from tsnn.data.table import read_table, write_table
from tsnn.errors import InputError
from tsnn.online.predictor import Predictor

LEVELS = ("G", "A", "M")


def table(folder: Path, rows: int = 100, **last: str) -> Path:
    """A column of each kind; the last row, a test row, has other cells."""
    lines = ["src,dst,t,level,price,won,note"]
    for i in range(rows):
        price = "" if i % 10 == 3 else f"{i % 7}"
        cells = {"level": LEVELS[i % 3], "price": price, "won": ("yes", "no", "")[i % 3], "note": f"day {i}: good tea"}
        cells |= last if i == rows - 1 else {}
        lines.append(f"u{i % 9},v{i % 5},{i}," + ",".join(cells.values()))
    path = folder / f"log{len(last)}.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


KINDS = ("level:category", "price:number", "won:boolean", "note:text")


def test_every_kind_becomes_features(tmp_path: Path) -> None:
    stream = read_table(table(tmp_path), msg=list(KINDS))
    assert stream.msg is not None
    level, price, won, note = np.split(stream.msg, np.cumsum([5, 2, 2]), axis=1)
    np.testing.assert_array_equal(level[:3], np.eye(5)[[1, 0, 2]])  # A, G, M, another, missing
    train = split_by_time(stream).train_end
    mean = np.mean([i % 7 for i in range(train) if i % 10 != 3])
    np.testing.assert_allclose(price[:4], [[0, 0], [1, 0], [2, 0], [mean, 1]], rtol=1e-6)
    np.testing.assert_array_equal(won[:3], [[1, 0], [0, 0], [0, 1]])
    assert note.shape == (100, CODE + 1)
    assert stream.description.messages[0] == MessageColumn("level", "category", ("A", "G", "M"))
    assert stream.preview is not None
    told = {view.column: view.understood for view in stream.preview.columns}
    assert told["level"] == "category: A, G, M"
    assert told["price"] == "number, 10 missing"


def test_text_is_a_category_where_it_has_few_values_and_spells_no_number(tmp_path: Path) -> None:
    stream = read_table(table(tmp_path), msg=["level"])
    assert stream.description.messages == (MessageColumn("level", "category", ("A", "G", "M")),)
    (tmp_path / "words.csv").write_text(
        "src,dst,t,note\n" + "\n".join(f"a,b,{i},{'x' * (i + 1)}" for i in range(50)) + "\n"
    )
    assert read_table(tmp_path / "words.csv", msg=["note"]).description.messages[0].kind == "text"


def test_nothing_is_learned_from_rows_after_training(tmp_path: Path) -> None:
    usual = read_table(table(tmp_path), msg=list(KINDS))
    other = read_table(table(tmp_path, level="new", price="1000"), msg=list(KINDS))
    assert usual.description.messages == other.description.messages
    assert usual.msg is not None
    assert other.msg is not None
    np.testing.assert_array_equal(usual.msg[:-1], other.msg[:-1])
    np.testing.assert_array_equal(other.msg[-1, :5], [0, 0, 0, 1, 0])


def test_a_run_reads_later_rows_as_it_was_trained(tmp_path: Path) -> None:
    about = read_table(table(tmp_path), msg=list(KINDS)).description
    assert Description.from_json(about.to_json()) == about
    (tmp_path / "later.csv").write_text("src,dst,t,level,price,won,note\nu1,v1,200,Z,,no,tea\n")
    later = read_table(tmp_path / "later.csv", like=about)
    assert later.msg is not None
    assert later.msg[0, :5].tolist() == [0, 0, 0, 1, 0]
    assert later.msg[0, 5] == np.float32(about.messages[1].fill)
    with pytest.raises(InputError, match="declared as text, but the run read it as category"):
        read_table(tmp_path / "later.csv", like=about, msg=["level:text"])


def test_an_imported_table_keeps_the_features(tmp_path: Path) -> None:
    stream = read_table(table(tmp_path), msg=list(KINDS))
    write_table(stream, tmp_path / "log.parquet")
    again = read_table(tmp_path / "log.parquet")
    np.testing.assert_array_equal(again.msg, stream.msg)
    assert not again.description.messages


@pytest.mark.parametrize(
    ("msg", "says"),
    [
        ("level:categry", "column 'level' is declared as 'categry'; did you mean 'category'"),
        ("levl:category", "there is no column 'levl:category'"),
        ("level:number", "level"),
        ("level:boolean", "column 'level' says 'G' in line 2 of .*, neither true nor false; declare it as a category"),
        ("price", r"the feature of line 5 .* is missing; .*--msg price:number"),
    ],
)
def test_a_wrong_kind_is_one_sentence(tmp_path: Path, msg: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        read_table(table(tmp_path), msg=[msg])


@pytest.mark.slow
def test_live_events_say_values_by_column(tmp_path: Path) -> None:
    settings = {"train.epochs": 1, "train.warmup": 1, "model.stalk_dim": 4, "model.hidden_dim": 4}
    path = table(tmp_path)
    run = tsnn.train(path, tmp_path / "run", Config.of(settings), compare=False, progress=False, msg=KINDS)
    assert tsnn.evaluate(run, path, progress=False).metrics["test"] == run.metrics["metrics"]["test"]
    told, numbers = (Predictor.load(run) for _ in range(2))
    told.observe("u1", "v1", 200, {"level": "M", "won": True, "note": "good tea"})
    like = read_table(_one_row(tmp_path), like=run.description)
    assert like.msg is not None
    numbers.observe("u1", "v1", 200, like.msg[0].tolist())
    assert told.score("u1", "v2", 201) == numbers.score("u1", "v2", 201)
    before = told.position if hasattr(told, "position") else told.clock
    for wrong, says in (
        ({"lvel": "M"}, "msg names 'lvel', which is no column of the run; did you mean 'level'"),
        ({"price": "cheap"}, "msg gives 'price' as 'cheap', which is no number"),
        ({"won": "maybe"}, "column 'won' says 'maybe' in the event, neither true nor false"),
        ({"level": ["M"]}, "msg gives 'level' several values"),
    ):
        with pytest.raises(InputError, match=says):
            told.observe("u1", "v1", 202, wrong)
    assert before == (told.position if hasattr(told, "position") else told.clock)


def _one_row(folder: Path) -> Path:
    path = folder / "one.csv"
    path.write_text("src,dst,t,level,price,won,note\nu1,v1,200,M,,yes,good tea\n")
    return path
