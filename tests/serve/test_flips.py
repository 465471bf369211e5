"""Random bits flipped and files cut short, over everything that a service or a trainer keeps: noticed, or harmless.

Harmless means proved so: what comes of it equals, bit for bit, what comes of the untouched files. Nothing may change an
answer in silence, and nothing may end the process.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.serve.runs import as_event, make_small_run, some_events
from tests.serve.states import fingerprint
from tests.training.test_whole import CONFIG, STREAM, interrupted
from tsnn.errors import TsnnError
from tsnn.online.predictor import Predictor
from tsnn.serve.eventlog import EventLog, Receipt
from tsnn.serve.service import HOME, restore, run_identity
from tsnn.serve.snapshots import write_snapshot
from tsnn.training.train import train

FLIPS, CUTS = 200, 100
EVENTS = [as_event(fields) for fields in some_events(120, prefix="k")]
STEP, SNAPSHOTS = 6, (30, 60)


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Path:
    """A run whose service was killed: log, write-ahead log, end file, two snapshots."""
    folder = tmp_path_factory.mktemp("flips")
    run = make_small_run(folder / "run")
    home = run / HOME
    home.mkdir()
    log, predictor = EventLog(home, run_identity(run)), Predictor.load(run)
    for start in range(0, len(EVENTS), STEP):
        if start == SNAPSHOTS[-1]:
            log.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        log.append(EVENTS[start : start + STEP], [Receipt(f"request {start}", b"digest", start + STEP)])
        predictor.observe_checked(EVENTS[start : start + STEP])
        if log.position in SNAPSHOTS:
            frozen = predictor.snapshot()
            write_snapshot(home, log.position, frozen.save, log.mark)
    left = Path(shutil.copytree(run, folder / "killed"))
    log.close()
    return left


def damaged(paths: list[Path], seed: int) -> Iterator[tuple[Path, bytes]]:
    """Flips, then cuts, spread over the files as their sizes are, but with some of them in each."""
    rng = np.random.default_rng(seed)
    for number in range(FLIPS + CUTS):
        path = paths[number % len(paths)]
        data = bytearray(path.read_bytes())
        if number < FLIPS:
            data[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
        else:
            del data[rng.integers(len(data)) :]
        yield path, bytes(data)


def outcome(attempt: Callable[[], object], expected: object) -> str:
    """Told in a sentence, or the very same answer; anything else fails the test."""
    try:
        found = attempt()
    except TsnnError as error:
        sentence = str(error)
    else:
        assert found == expected, "an answer has changed in silence"
        return "harmless"
    assert sentence.endswith(".")
    return "told"


def answers(run: Path) -> tuple[object, ...]:
    """Everything that a service would answer, and what it says on the way."""
    said: list[str] = []
    log, predictor, position = restore(run, run_identity(run), said.append)
    try:
        for events in log.read(position):
            predictor.observe_checked(events)
        known = {event.key: event for event in log.events_of([event.key for event in EVENTS]).values()}
        requests = [log.receipt_of(f"request {start}") for start in range(0, len(EVENTS), STEP)]
        return fingerprint(predictor), log.position, known, [receipt[:2] for receipt in requests if receipt]
    finally:
        log.close()


@pytest.mark.slow
def test_no_damage_to_a_served_run_changes_an_answer_in_silence(served, tmp_path):
    files = sorted(path.relative_to(served) for path in served.rglob("*") if path.is_file())
    files = [path for path in files if path.name not in ("lock", "events.sqlite-shm")]
    assert {"events.sqlite", "events.sqlite-wal", "events.end", "state.safetensors"} <= {path.name for path in files}
    whole = answers(Path(shutil.copytree(served, tmp_path / "whole")))
    assert whole[1] == len(EVENTS)
    seen: Counter[tuple[str, str]] = Counter()
    for path, data in damaged([served / path for path in files], seed=0):
        run = Path(shutil.copytree(served, tmp_path / "run"))
        (run / path.relative_to(served)).write_bytes(data)
        kind = "snapshot" if "snapshots" in path.parts else path.name
        seen[kind, outcome(lambda run=run: answers(run), whole)] += 1
        shutil.rmtree(run)
    assert sum(seen.values()) == FLIPS + CUTS
    for name in ("weights.safetensors", "state.safetensors", "config.toml", "ids.parquet"):
        assert not seen[name, "harmless"], name
    assert seen["events.sqlite-wal", "told"]
    assert seen["events.sqlite", "told"]


@pytest.mark.slow
def test_no_damage_to_a_checkpoint_changes_what_is_trained_in_silence(tmp_path):
    whole = train(STREAM, tmp_path / "whole", CONFIG, compare=False)
    expected = fingerprint(Predictor.load(whole))
    interrupted(tmp_path / "left")
    path = tmp_path / "left" / "checkpoint.safetensors"
    tried = told = 0
    for _, data in damaged([path], seed=1):
        tried += 1
        if tried % 10:  # every damage is loaded; to train on after each would take minutes
            told += is_told(data, tmp_path)
            continue
        run = Path(shutil.copytree(tmp_path / "left", tmp_path / "run"))
        (run / path.name).write_bytes(data)
        said = outcome(lambda run=run: fingerprint(Predictor.load(train(STREAM, run, CONFIG, compare=False))), expected)
        told += said == "told"
        shutil.rmtree(run)
    assert told == tried == FLIPS + CUTS  # a checkpoint has no byte that does not matter


def is_told(data: bytes, folder: Path) -> bool:
    from tsnn.training.checkpoint import load_checkpoint

    (folder / "damaged").write_bytes(data)
    with pytest.raises(TsnnError, match="remove it to start again"):
        load_checkpoint(folder / "damaged")
    return True
