"""A population on the host (see tests/engine/emulated.py): a member is what it is alone, and what the trainer makes."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch

from tests.engine import emulated
from tests.engine.streams import TINY
from tsnn.config import Config
from tsnn.data.events import EventStream, NodeIds
from tsnn.data.split import Split, split_by_time
from tsnn.engine import cuda
from tsnn.engine import population as stacks
from tsnn.errors import ConfigError
from tsnn.evaluation.dgb import DgbQuestions, evaluate_dgb
from tsnn.evaluation.model import ModelScorer
from tsnn.training import population
from tsnn.training.population import PopulationTrainer
from tsnn.training.trainer import Trainer
from tsnn.types import Visibility

HOST = torch.device("cpu")
ROWS = 48  # each costs the emulator milliseconds, for every member and in every epoch
SETTINGS = TINY | {"train.epochs": 2, "train.warmup": 2, "train.chunk": 8, "train.negatives": 2}


@pytest.fixture
def on_the_host(monkeypatch):
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler is at hand")
    monkeypatch.setattr(cuda, "launch", emulated.launch)
    monkeypatch.setattr(cuda.Shape, "threads", property(lambda shape: 128))  # the emulator runs them one by one
    for module in (cuda, stacks, population):
        monkeypatch.setattr(module, "GROUP", 2)


def split() -> Split:
    rng = np.random.default_rng(0)
    t = np.cumsum(rng.integers(0, 2, ROWS))
    src, dst = rng.integers(0, 8, ROWS), rng.integers(4, 12, ROWS)
    return split_by_time(
        EventStream(src, dst, t, NodeIds(range(12)), msg=rng.normal(size=(ROWS, 2)).astype(np.float32))
    )


def config(**settings: object) -> Config:
    return Config.build(overrides=SETTINGS | {name.replace("__", "."): value for name, value in settings.items()})


MEMBERS = [
    config(train__seed=3),
    config(train__seed=4, train__lr=0.01, train__loss__geo=0.5, model__kappa=7.0),
    config(train__seed=5, train__clip=0.1, train__weight_decay=0.1, model__step_size=0.05),
]


def weights(trained) -> dict[str, torch.Tensor]:
    return trained.model.state_dict()


@pytest.mark.usefixtures("on_the_host")
@pytest.mark.parametrize("visibility", ["strict", "batch:20"])
def test_members_are_what_the_trainer_makes(visibility):
    """In float64 to rounding; `batch:20` fills chunks with more queries than rows, in minibatches."""
    data = split()
    seen = Visibility.parse(visibility)
    configs = [
        own.model_copy(update={"train": own.train.model_copy(update={"visibility": visibility})}) for own in MEMBERS
    ]
    trainer = PopulationTrainer(configs, data, HOST)

    def measure(model):
        return evaluate_dgb(ModelScorer(model, data.stream), data, seen, sets=("val",)).metrics["val"]["ap"]

    for own, member, made in zip(configs, trainer.members, trainer.run(), strict=True):
        alone = Trainer(own, data, measure).run()
        assert (made.best_epoch, made.epochs) == (alone.best_epoch, alone.epochs)
        assert member.best_metric == pytest.approx(alone.best_metric, abs=1e-6)
        for name, value in weights(alone).items():
            torch.testing.assert_close(weights(made)[name], value, rtol=1e-6, atol=1e-8)


@pytest.mark.usefixtures("on_the_host")
def test_a_member_is_bit_for_bit_what_it_is_alone():
    data = split()
    together = PopulationTrainer(MEMBERS, data, HOST)
    questions = DgbQuestions(data, Visibility.parse("strict"))
    for made, scores, own in zip(together.run(), together.evaluate(questions), MEMBERS, strict=True):
        single = PopulationTrainer([own], data, HOST)
        (alone,) = single.run()
        assert single.members[0].history == together.members[MEMBERS.index(own)].history
        for name, value in weights(alone).items():
            assert torch.equal(weights(made)[name], value), name
        assert np.array_equal(single.evaluate(questions)[0], scores)


@pytest.mark.usefixtures("on_the_host")
def test_scores_are_those_of_the_models():
    data, seen = split(), Visibility.parse("strict")
    trainer = PopulationTrainer(MEMBERS[:2], data, HOST)
    made, questions = trainer.run(), DgbQuestions(data, Visibility.parse("strict"))
    for own, scores in zip(made, trainer.evaluate(questions), strict=True):
        expected = evaluate_dgb(ModelScorer(own.model, data.stream), data, seen).metrics
        assert questions.result("tsnn", scores).metrics["test"]["ap"] == pytest.approx(expected["test"]["ap"], abs=1e-6)


@pytest.mark.usefixtures("on_the_host")
def test_a_member_whose_loss_is_no_number_harms_nobody():
    broken = config(train__seed=4, train__lr=1e6, train__clip=1e9)
    data = split()
    trainer = PopulationTrainer([MEMBERS[0], broken], data, HOST)
    first, _ = trainer.run()
    (alone,) = PopulationTrainer([MEMBERS[0]], data, HOST).run()
    assert not trainer.members[0].failed
    for name, value in weights(alone).items():
        assert torch.equal(weights(first)[name], value), name


def test_runs_of_different_shapes_are_no_population():
    with pytest.raises(ConfigError, match=r"may differ in train\.clip"):
        PopulationTrainer([MEMBERS[0], config(model__stalk_dim=8)], split(), HOST)
    with pytest.raises(ConfigError, match="no attention"):
        PopulationTrainer([config(model__attention=True)], split(), HOST)


@pytest.mark.skipif(not cuda.has_cupy(), reason="no GPU with CuPy is at hand")
def test_on_a_gpu_recorded_steps_leave_every_member_as_it_is_alone():
    """Enough chunks of one shape for a recording, in float32; 40 members are two groups."""
    members = [
        config(train__seed=seed, train__lr=0.001 * (1 + seed % 3), train__epochs=4, train__dtype="float32")
        for seed in range(40)
    ]
    data, device = split(), torch.device("cuda")
    together = PopulationTrainer(members, data, device).run()
    for i in (0, 33, 39):
        (alone,) = PopulationTrainer([members[i]], data, device).run()
        for name, value in weights(alone).items():
            assert torch.equal(weights(together[i])[name], value), (i, name)
