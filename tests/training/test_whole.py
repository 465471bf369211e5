"""A run and a checkpoint are what was written, or refused; one process at a time works on a folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.serve.runs import SMALL, make_small_run
from tsnn.config import Config
from tsnn.data.synthetic import load_synthetic
from tsnn.errors import RunError
from tsnn.files import held
from tsnn.online.predictor import Predictor
from tsnn.training.checkpoint import Journal, metadata_of, write_tensors
from tsnn.training.manifest import MANIFEST
from tsnn.training.run import Run
from tsnn.training.train import train
from tsnn.training.trainer import Trainer

FILES = ("config.toml", "weights.safetensors", "state.safetensors", "ids.parquet", "data.json", "metrics.json")


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    return make_small_run(tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture
def run(small, tmp_path) -> Path:
    return Path(shutil.copytree(small, tmp_path / "run"))


def change(run: Path, name: str, of: str, change_it) -> None:
    """Change one tensor of a file as somebody would who makes the manifest fit."""
    tensors = load_file(run / of)
    tensors[name] = change_it(tensors[name].clone())
    metadata = {"format": "1"}
    if of.startswith("weights"):
        from safetensors import safe_open

        with safe_open(run / of, framework="pt") as file:
            metadata = metadata_of(file)
    write_tensors(run / of, tensors, metadata)
    (run / MANIFEST).unlink()


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("place", [0.1, 0.5, 0.95])
def test_a_changed_byte_of_any_file_is_told(run, name, place):
    data = bytearray((run / name).read_bytes())
    data[int(place * len(data))] ^= 4
    (run / name).write_bytes(data)
    with pytest.raises(RunError, match=f"{name} is not as it was written"):
        Predictor.load(run)


def test_a_damaged_manifest_is_told_and_a_run_without_one_is_taken(run):
    asked = Predictor.load(run).score(1, 3, edge_type=0)
    (run / MANIFEST).write_text("{")
    with pytest.raises(RunError, match="cannot be read"):
        Predictor.load(run)
    (run / MANIFEST).unlink()  # as runs of earlier versions are
    assert Predictor.load(run).score(1, 3, edge_type=0) == asked


def put(value, place=0):
    def change_it(tensor):
        tensor.view(-1)[place] = value
        return tensor

    return change_it


DAMAGED = {
    "a frame that is no number": ("F", put(float("nan"))),
    "a stalk that is infinite": ("h", put(float("inf"))),
    "fewer stalks than frames": ("h", lambda x: x[:-1]),
    "more nodes than ids": ("h", lambda x: torch.cat([x, x])),
    "a clock before the origin": ("clock", lambda x: x * 0 - 1),
    "a neighbor that is not there": ("counters/ring_id", put(20)),
    "a neighbor far away": ("counters/ring_id", put(-(2**31))),
    "a neighbor of another kind": ("counters/ring_id", lambda x: x.to(torch.int64)),
    "a ring that is shorter": ("counters/ring_t", lambda x: x[:, :-1]),
    "a destination that is not there": ("counters/last_dst", put(2**30)),
    "a negative count": ("counters/ring_len", put(-1)),
    "a pair of strangers": ("counters/pair_key", put(2**62, -1)),
    "pairs out of order": ("counters/pair_key", lambda x: x.flip(0)),
    "a move of strangers": ("counters/succ_key", put(77, -1)),
    "a queue without an end": ("counters/ints", put(10**9, 6)),
    "more pairs than there are": ("counters/ints", put(10**6, 1)),
    "an infinite count": ("counters/recent", put(float("inf"))),
    "a walk of another length": ("counters/walk", lambda x: torch.zeros(*x.shape[:2], 3)),
    "a last event of strangers": ("tie/src", put(20)),
    "a last event of no relation": ("tie/edge_type", put(7)),
    "a last event at another time": ("tie/t", put(3)),
    "wider last events": ("tie/msg", lambda x: torch.cat([x, x], 1)),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_state_that_cannot_be_is_refused_before_anything_runs_on_it(run, case):
    name, change_it = DAMAGED[case]
    change(run, name, "state.safetensors", change_it)
    with pytest.raises(RunError, match="hold"):
        Predictor.load(run)


def test_weights_that_cannot_be_are_refused(run, tmp_path):
    name = next(name for name, tensor in load_file(run / "weights.safetensors").items() if tensor.dim() == 2)
    other = Path(shutil.copytree(run, tmp_path / "other"))
    change(run, name, "weights.safetensors", put(float("nan")))
    with pytest.raises(RunError, match="no number"):
        Run.load(run)
    change(other, name, "weights.safetensors", lambda x: x[:-1])
    with pytest.raises(RunError, match=r"does not fit its config\.toml"):
        Run.load(other)


def test_figures_that_are_no_json_are_told(run):
    (run / MANIFEST).unlink()
    (run / "metrics.json").write_bytes(b"\xff{")
    with pytest.raises(RunError, match=r"metrics\.json cannot be read"):
        Run.load(run)


def test_equal_tensors_make_equal_files(tmp_path):
    metadata = {f"entry {i}": "x" * i for i in range(20)}
    for name in ("one", "other"):
        write_tensors(tmp_path / name, {"a": torch.zeros(3)}, metadata)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def test_a_file_of_an_earlier_version_is_read(run):
    state = load_file(run / "state.safetensors")
    save_file(state, run / "state.safetensors", {"format": "1"})
    (run / MANIFEST).unlink()
    assert np.isfinite(Predictor.load(run).score(1, 3, edge_type=0))


def test_a_served_run_keeps_the_state_that_its_log_follows_on(run, tmp_path):
    predictor = Predictor.load(run)
    (run / "online").mkdir()
    with pytest.raises(RunError, match="save to another folder"):
        predictor.save(run)
    predictor.save(tmp_path / "copy")
    assert Predictor.load(tmp_path / "copy").clock == predictor.clock
    assert not (tmp_path / "copy" / "online").exists()


def test_one_process_saves_at_a_time(run):
    with held(run, "taken"), pytest.raises(RunError, match="another process writes"):
        Predictor.load(run).save(run)


# Training

STREAM = load_synthetic("roles:events=300,nodes=30")
CONFIG = Config.build(overrides={**SMALL, "train.epochs": 2})


class StoppedError(Exception):
    pass


def interrupted(folder: Path) -> None:
    """Training that is killed after its first epoch."""
    closed: list[int] = []
    close = Trainer._close

    def stop(self):
        close(self)
        closed.append(1)
        if len(closed) == 2:
            raise StoppedError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "_close", stop)
        with pytest.raises(StoppedError):
            train(STREAM, folder, CONFIG, compare=False)


def test_two_trainers_in_one_folder_are_refused(tmp_path):
    (tmp_path / "run").mkdir()
    with held(tmp_path / "run", "taken"), pytest.raises(RunError, match="another process trains"):
        train(STREAM, tmp_path / "run", CONFIG, compare=False)


@pytest.mark.slow
def test_a_checkpoint_that_has_changed_is_told_and_without_it_training_begins_anew(tmp_path):
    whole = train(STREAM, tmp_path / "whole", CONFIG, compare=False)
    journal = (whole.folder / "journal.jsonl").read_text()
    folder = tmp_path / "run"
    interrupted(folder)
    (folder / ".partial-1-metrics.json").write_text("half")
    path = folder / "checkpoint.safetensors"
    data = bytearray(path.read_bytes())
    for place in (9, len(data) // 2, len(data) - 5):
        changed = bytearray(data)
        changed[place] ^= 16
        path.write_bytes(changed)
        with pytest.raises(RunError, match="remove it to start again"):
            train(STREAM, folder, CONFIG, compare=False)
    path.unlink()
    run = train(STREAM, folder, CONFIG, compare=False)
    assert [json.loads(line)["epoch"] for line in (folder / "journal.jsonl").read_text().splitlines()] == [0, 1]
    assert (folder / "journal.jsonl").read_text() == journal
    assert run.metrics == whole.metrics
    assert not list(folder.glob(".partial-*"))
    same = [name for name in FILES if (folder / name).read_bytes() == (whole.folder / name).read_bytes()]
    assert same == list(FILES)  # equal runs are equal to the last byte


def test_a_journal_that_is_shorter_than_it_was_is_not_filled_up(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    journal.write(epoch=0)
    size = journal.size
    journal.truncate(size + 500)
    assert (tmp_path / "journal.jsonl").read_text() == '{"epoch": 0}\n'
    journal.write(epoch=1)
    journal.truncate(size)
    assert (tmp_path / "journal.jsonl").read_text() == '{"epoch": 0}\n'
    Journal(tmp_path / "absent.jsonl").truncate(0)
    assert not (tmp_path / "absent.jsonl").exists()
