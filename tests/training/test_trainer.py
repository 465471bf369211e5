"""Truncated BPTT (alg:train): gradients under every visibility, resuming, golden losses."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.engine.streams import config_of
from tsnn.data.split import split_by_time
from tsnn.errors import RunError, TsnnError
from tsnn.evaluation.catalog import default_split, load
from tsnn.evaluation.contracts import tied_stream
from tsnn.model.losses import LOSSES
from tsnn.training import trainer as trainer_module
from tsnn.training.trainer import Trainer


def make(tmp_path=None, validate=lambda model: 0.0, seconds=0.0, stream=None, **overrides):
    settings = {"train__chunk": 10, "train__epochs": 2, "train__dtype": "float32", **overrides}
    split = split_by_time(stream or tied_stream())
    trainer = Trainer(config_of(**settings), split, validate, tmp_path)
    trainer.checkpoint_seconds = seconds
    return trainer


def weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


@pytest.mark.parametrize("visibility", ["strict", "arrival", "batch:10", "batch:25"])
def test_every_training_row_is_scored_once(visibility):
    """alg:train, with queries scheduled by their cut."""
    trainer = make(train__visibility=visibility)
    asked = [row for _, _, first, last in trainer.rows.chunks() for row in range(first, last)]
    assert asked == list(range(trainer.split.train_end))
    for start, stop, first, last in trainer.rows.chunks():
        cuts = trainer.rows.cuts[first:last]
        assert ((cuts <= stop) & ((cuts > start) | (start == 0))).all()


def update_gradients(trainer: Trainer, plan) -> dict[str, float]:
    """Norms of the ranking loss's gradient in the update networks."""
    versions = trainer_module.run_update(trainer.model, trainer.engine, trainer.store, plan.update, trainer.stream)
    trainer.model.zero_grad()
    trainer.losses(plan.score, versions)[LOSSES.index("ce")].backward()
    names = ("updater.frame_in", "updater.frame_out", "updater.msg_in", "updater.msg_out", "updater.gru")
    found = dict.fromkeys(names, 0.0)
    for name, parameter in trainer.model.named_parameters():
        for part in names:
            if name.startswith(part) and parameter.grad is not None:
                found[part] += float(parameter.grad.abs().sum())
    return found


def test_ranking_loss_reaches_the_update_networks_on_uslegis_under_strict(need_data):
    """One timestamp fills dozens of chunks there; the states a score may see were all written before it."""
    need_data("dgb/USLegis")
    split = default_split(load("dgb:USLegis"))
    config = config_of(train__visibility="strict", train__chunk=40, model__num_neighbors=2)
    trainer = Trainer(config, split, lambda model: 0.0)
    start, stop, first, _ = next(c for c in trainer.rows.chunks() if c[0] > 0 and c[3] - c[2] > 1000)
    trainer.planner.advance(start)
    plan = trainer.planner.plan(stop, trainer.queries(start, first, first + 40))
    # One chunk before is run for real, so that stalks and frames are not at their initial zeros.
    trainer.store.h.normal_(generator=torch.Generator().manual_seed(0))
    norms = update_gradients(trainer, plan)
    assert all(norm > 0 for norm in norms.values()), norms


@pytest.mark.parametrize("visibility", ["strict", "arrival", "batch:10"])
def test_training_lowers_the_loss(visibility, tmp_path):
    """On a stream where every source always goes to the same place."""
    stream = replace(tied_stream(), dst=(tied_stream().src + 1) % tied_stream().num_nodes)
    options = {"train__visibility": visibility, "train__epochs": 8, "train__lr": 0.01}
    trainer = make(tmp_path, seconds=1e9, stream=stream, **options)
    trainer.run()
    entries = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    assert entries[-1]["losses"]["ce"] < 0.9 * entries[0]["losses"]["ce"]


class KilledError(Exception):
    pass


@pytest.mark.parametrize("chunk", [1, 4, 8, 9, 14])
def test_resume_after_a_kill_is_bit_identical(chunk, tmp_path, monkeypatch):
    """Killed in the middle of an epoch, at its end, and in the next one."""
    whole = make(tmp_path / "whole", lambda model: float(model.head.beta.detach()))
    (tmp_path / "whole").mkdir()
    whole.run()
    folder = tmp_path / "killed"
    folder.mkdir()
    killed = make(folder, lambda model: float(model.head.beta.detach()))
    calls = 0
    train_chunk = Trainer._train_chunk

    def dying(self, plan, data):
        nonlocal calls
        calls += 1
        if calls == chunk:
            raise KilledError
        train_chunk(self, plan, data)

    monkeypatch.setattr(Trainer, "_train_chunk", dying)
    with pytest.raises(KilledError):
        killed.run()
    monkeypatch.undo()
    resumed = make(folder, lambda model: float(model.head.beta.detach()))
    resumed.run()
    for name, value in weights(whole).items():
        assert torch.equal(value, weights(resumed)[name]), name
    assert torch.equal(whole.store.h, resumed.store.h)
    assert torch.equal(whole.store.F, resumed.store.F)
    assert (folder / "journal.jsonl").read_text() == (tmp_path / "whole" / "journal.jsonl").read_text()


def test_a_checkpoint_of_other_settings_is_refused(tmp_path):
    make(tmp_path).run()
    with pytest.raises(RunError, match="other settings"):
        make(tmp_path, train__lr=0.5).run()


def test_a_torn_checkpoint_is_refused(tmp_path):
    (tmp_path / "checkpoint.safetensors").write_bytes(b"torn")
    with pytest.raises(RunError, match="remove it"):
        make(tmp_path).run()


def test_early_stopping_keeps_the_best_weights(tmp_path):
    figures = iter([0.1, 0.9, 0.3, 0.2, 0.8, 0.7])
    seen = []

    def validate(model):
        seen.append(float(model.head.beta.detach()))
        return next(figures)

    model, course = make(tmp_path, validate, train__epochs=6, train__patience=2).run()
    assert (course.best_metric, course.best_epoch, course.epoch) == (0.9, 1, 4)
    assert float(model.head.beta.detach()) == seen[1]


def test_a_diverging_loss_says_what_to_do():
    trainer = make()
    with torch.no_grad():
        trainer.model.head.beta.fill_(torch.nan)
    with pytest.raises(TsnnError, match=r"lower train\.lr"):
        trainer.run()


def test_two_runs_are_bit_identical_and_seeds_differ():
    first, second, other = make(), make(), make(train__seed=1)
    for trainer in (first, second, other):
        trainer.run()
    assert all(torch.equal(value, weights(second)[name]) for name, value in weights(first).items())
    assert not torch.equal(weights(first)["head.mlp.0.weight"], weights(other)["head.mlp.0.weight"])


@pytest.mark.parametrize("engine", ["fused", "reference"])
def test_frames_keep_their_length_over_a_stream(engine):
    """D-24: every row that an event has moved is sqrt(d / k) long; others are as they were drawn."""
    lengths = {}
    for kind in ("kept", "free"):
        trainer = make(model__frame_length=kind, model__frame_drift=20.0, train__engine=engine)
        first = trainer.store.F.clone()
        trainer.run()
        moved = (first != trainer.store.F).any(-1).any(-1)
        assert moved.any()
        lengths[kind] = trainer.store.F[moved].norm(dim=-1)
    torch.testing.assert_close(lengths["kept"], torch.full_like(lengths["kept"], 3**0.5))  # d = 6, k = 2
    assert lengths["free"].mean() > 6


def test_updaters_and_messages_begin_as_they_are_told():
    """D-17, D-19: MLP_frame's output as it is drawn, messages as they are."""
    usual, plain = make().model, make(model__frame_drift=1.0, model__standardize_msg=False).model
    drawn = plain.updater.frame_out
    torch.testing.assert_close(usual.updater.frame_out.weight, 0.1 * drawn.weight)
    assert drawn.bias.all()
    assert not usual.updater.frame_out.bias.any()
    assert usual.msg_shift.all()
    assert not plain.msg_shift.any()
    assert (plain.msg_scale == 1).all()


def test_no_epochs_leave_the_warm_head_alone():
    """What a model without states is compared with."""
    trainer = make(train__epochs=0, train__warmup=1)
    model, course = trainer.run()
    assert course.best_epoch == -1
    assert not model.head.geometry_weight


GOLDEN = {
    "a warm head, compiled": (
        {"train__warmup": 2},
        [[1.3843520768867406, 0.7049987215621819, 1.3852683963732666, 0.10253218774274758, 0.0025060546404194334,
          0.1680110651463279],
         [1.3838226041865511, 0.7009992240579813, 1.3849898682734645, 0.09095933068326036, 0.0038850363724053055,
          0.0840108534693129]],
    ),
    "minibatches of one cut, event by event": (
        {"train__visibility": "batch:25", "train__engine": "reference", "model__attention": True},
        [[1.3627286014152937, 1.149577442679271, 1.3684474712613919, 0.11279434152193937, 0.006834205209046674,
          0.22316951931766185],
         [1.3433055801617946, 1.0464019279352608, 1.3484310314594952, 0.06425631450615345, 0.01476962097551197,
          0.1824608426335514]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", GOLDEN)
def test_golden_losses(case, tmp_path):
    """Two epochs in float64, walks in float32; the tolerance is for another machine's sums."""
    settings, expected = GOLDEN[case]
    make(tmp_path, train__dtype="float64", train__negatives=3, features__walks=True, **settings).run()
    entries = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    found = [[entry["losses"][name] for name in LOSSES] for entry in entries]
    assert np.array(found) == pytest.approx(np.array(expected), rel=1e-8)
