"""A stack on the host (see tests/engine/emulated.py): a member is what it is alone, and what the trainer makes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.engine import emulated
from tests.engine.streams import TINY
from tsnn.config import Config
from tsnn.data.events import EventStream, NodeIds
from tsnn.data.question import Question
from tsnn.data.split import Split, split_by_time
from tsnn.data.tgb_negatives import TgbNegatives, generate_negatives
from tsnn.engine import cuda
from tsnn.errors import ConfigError
from tsnn.evaluation.dgb import DgbQuestions
from tsnn.evaluation.evaluate import validation_metric
from tsnn.evaluation.model import ModelScorer
from tsnn.evaluation.replay import figures
from tsnn.evaluation.stream import StreamQuestions
from tsnn.evaluation.tgb import TgbQuestions
from tsnn.study.tables import CORE, REMOVALS
from tsnn.training.stacked import StackedTrainer
from tsnn.training.trainer import Trainer
from tsnn.training.turns import finish, side_by_side

HOST = torch.device("cpu")
ROWS = 48  # each costs the emulator milliseconds, for every member and in every epoch
SETTINGS = TINY | {"train.epochs": 2, "train.warmup": 2, "train.chunk": 8, "train.negatives": 2}


@pytest.fixture
def on_the_host(monkeypatch):
    emulated.small_stacks(monkeypatch)


def split() -> Split:
    rng = np.random.default_rng(0)
    t = np.cumsum(rng.integers(0, 2, ROWS))
    src, dst = rng.integers(0, 8, ROWS), rng.integers(4, 12, ROWS)
    msg = rng.normal(size=(ROWS, 2)).astype(np.float32)
    return split_by_time(EventStream(src, dst, t, NodeIds(range(12)), msg=msg, name="dgb:tiny"))


def config(**settings: object) -> Config:
    return Config.build(overrides=SETTINGS | {name.replace("__", "."): value for name, value in settings.items()})


MEMBERS = [
    config(train__seed=3),
    config(train__seed=4, train__lr=0.01, train__loss__geo=0.5, model__kappa=7.0),
    config(train__seed=5, train__clip=0.1, train__weight_decay=0.1, model__step_size=0.05),
]


def tgb_questions(data: Split, question: Question) -> TgbQuestions:
    negatives = TgbNegatives(data)
    negatives._generated = generate_negatives(data, 7)
    negatives.name = "tgbl-wiki"
    return TgbQuestions(data, question, lists=negatives)


def weights(trained) -> dict[str, torch.Tensor]:
    return trained.model.state_dict()


@pytest.mark.usefixtures("on_the_host")
@pytest.mark.parametrize("visibility", ["strict", "batch:20"])
def test_members_are_what_the_trainer_makes(visibility):
    """`batch:20` fills chunks with more queries than rows, in minibatches."""
    check_against_the_trainer(
        [own.model_copy(update={"train": own.train.model_copy(update={"visibility": visibility})}) for own in MEMBERS]
    )


@pytest.mark.usefixtures("on_the_host")
@pytest.mark.parametrize("change", REMOVALS.values(), ids=REMOVALS)
def test_ablations_are_what_the_trainer_makes(change):
    check_against_the_trainer([Config.build(overrides=SETTINGS | {"train.epochs": 1} | CORE | change)])


@pytest.mark.usefixtures("on_the_host")
@pytest.mark.parametrize(
    "change",
    [
        {"features.encoded_gaps": True},
        {"model.scalars": "raw", "model.gaps": "raw"},
        {"features.walks": False},
        {"features.never": False},
        {"model.kappa_scale": "log", "model.kappa": 2.0, "model.quiet_geometry": False},
    ],
)
def test_inputs_of_the_score_are_what_the_trainer_makes(change):
    check_against_the_trainer([Config.build(overrides=SETTINGS | {"train.epochs": 1} | change)])


@pytest.mark.usefixtures("on_the_host")
def test_states_of_one_s_own_are_what_the_trainer_makes():
    """Two seeds, so two sets of codes; a second epoch begins with them again."""
    change = {"model.stalks": "keyed", "model.role": True, "model.frame_length": "kept", "train.collisions": True}
    change |= {"train.loss.geo": 0.5, "train.loss.geo_products": "bounded", "train.warmup": 0}
    check_against_the_trainer([Config.build(overrides=SETTINGS | change | {"train.seed": seed}) for seed in (3, 4)])


@pytest.mark.usefixtures("on_the_host")
def test_the_preset_paper_is_what_the_trainer_makes():
    check_against_the_trainer([Config.build(overrides=SETTINGS | {"train.epochs": 1}, preset="paper")])


def check_against_the_trainer(configs: list[Config]) -> None:
    """In float64 to rounding."""
    data = split()
    trainer = StackedTrainer(configs, data, HOST)
    validate = validation_metric(data, Question.of(configs[0].train))

    def measure(model):
        return validate(ModelScorer(model, data.stream))

    for own, made in zip(configs, finish(trainer.run()), strict=True):
        alone = Trainer(own, data, measure).run()
        ours, theirs = made.course, alone.course
        assert (ours.best_epoch, ours.epoch) == (theirs.best_epoch, theirs.epoch)
        assert ours.best_metric == pytest.approx(theirs.best_metric, abs=1e-6)
        for name, value in weights(alone).items():
            torch.testing.assert_close(weights(made)[name], value, rtol=1e-6, atol=1e-8)


@pytest.mark.usefixtures("on_the_host")
def test_a_member_is_bit_for_bit_what_it_is_alone():
    data = split()
    together = StackedTrainer(MEMBERS, data, HOST)
    questions = DgbQuestions(data, Question())
    trained, answered = finish(together.run()), finish(together.evaluate(questions))
    for made, answers, own in zip(trained, answered, MEMBERS, strict=True):
        single = StackedTrainer([own], data, HOST)
        (alone,) = finish(single.run())
        assert alone.course == made.course
        for name, value in weights(alone).items():
            assert torch.equal(weights(made)[name], value), name
        assert np.array_equal(finish(single.evaluate(questions))[0], answers)


@pytest.mark.usefixtures("on_the_host")
def test_only_members_run_the_recurrence(monkeypatch):
    """A group of two is filled up with a copy, which has no thread block."""
    streams = []

    def counting(shape, name, number, *structs):
        streams.append(number)
        emulated.launch(shape, name, number, *structs)

    monkeypatch.setattr(cuda, "launch", counting)
    finish(StackedTrainer(MEMBERS, split(), HOST).run())
    assert set(streams) == {len(MEMBERS)}


@pytest.mark.usefixtures("on_the_host")
def test_stacks_side_by_side_are_what_they_are_alone():
    """Variants of an ablation: other kernels, another plan, no warm head; of different lengths, so one ends first."""
    variants = [{}, {"model__diffusion_steps": 0}, {"model__residual": False}, {"train__epochs": 1}]
    configs = [[config(train__seed=seed, **changes) for seed in (3, 4)] for changes in variants]
    data, order = split(), []

    def work(number):
        made = yield from StackedTrainer(configs[number], data, HOST).run()
        order.append(number)
        return number, made

    found = dict(side_by_side([work(number) for number in range(len(variants))], HOST))
    assert order[0] == 3
    assert sorted(order) == [0, 1, 2, 3]
    for own, together in zip(configs, (found[number] for number in range(4)), strict=True):
        for made, alone in zip(together, finish(StackedTrainer(own, data, HOST).run()), strict=True):
            for name, value in weights(alone).items():
                assert torch.equal(weights(made)[name], value), name


@pytest.mark.usefixtures("on_the_host")
@pytest.mark.parametrize("protocol", [DgbQuestions, tgb_questions, StreamQuestions])
def test_figures_are_those_of_the_models(protocol):
    """By every protocol, and the figure that chooses epochs is the one that is shown."""
    data = split()
    trainer = StackedTrainer(MEMBERS[:2], data, HOST)
    made, questions = finish(trainer.run()), protocol(data, Question())
    for own, answers in zip(made, finish(trainer.evaluate(questions)), strict=True):
        expected = figures(ModelScorer(own.model, data.stream), data.stream, questions).metrics
        for name, found in questions.result("tsnn", answers).metrics.items():
            assert found == pytest.approx(expected[name], abs=1e-6), name
        assert questions.validation(answers) == pytest.approx(questions.choice(expected["val"]))


@pytest.mark.usefixtures("on_the_host")
def test_a_member_whose_loss_is_no_number_harms_nobody():
    broken = config(train__seed=4, train__lr=1e200, train__clip=1e200)
    data = split()
    trainer = StackedTrainer([MEMBERS[0], broken], data, HOST)
    first, _ = finish(trainer.run())
    (alone,) = finish(StackedTrainer([MEMBERS[0]], data, HOST).run())
    assert [course.failed for course in trainer.courses] == [False, True]
    for name, value in weights(alone).items():
        assert torch.equal(weights(first)[name], value), name


def test_runs_of_different_shapes_are_no_stack():
    with pytest.raises(ConfigError, match=r"may differ in model\.kappa, .*train\.clip"):
        StackedTrainer([MEMBERS[0], config(model__stalk_dim=8)], split(), HOST)
    with pytest.raises(ConfigError, match="may differ in"):  # of the losses they choose the weights alone
        StackedTrainer([MEMBERS[0], config(train__loss__geo_products="bounded")], split(), HOST)
    with pytest.raises(ConfigError, match="no attention"):
        StackedTrainer([config(model__attention=True)], split(), HOST)


@pytest.mark.skipif(not cuda.has_cupy(), reason="no GPU with CuPy is at hand")
def test_on_a_gpu_recorded_steps_leave_every_member_as_it_is_alone():
    """Enough chunks of one shape for a recording, in float32; 40 members are two groups."""
    members = [
        config(train__seed=seed, train__lr=0.001 * (1 + seed % 3), train__epochs=4, train__dtype="float32")
        for seed in range(40)
    ]
    data, device = split(), torch.device("cuda")
    together = finish(StackedTrainer(members, data, device).run())
    for i in (0, 33, 39):
        (alone,) = finish(StackedTrainer([members[i]], data, device).run())
        for name, value in weights(alone).items():
            assert torch.equal(weights(together[i])[name], value), (i, name)


@pytest.mark.skipif(not cuda.has_cupy(), reason="no GPU with CuPy is at hand")
def test_on_a_gpu_stacks_side_by_side_are_what_they_are_alone():
    """Each on a stream of its own, with recorded steps."""
    settings = {"train__epochs": 4, "train__dtype": "float32"}
    variants = [{}, {"model__diffusion_steps": 0}, {"model__carry_over": False}, {"model__transport": False}]
    configs = [[config(train__seed=seed, **settings, **changes) for seed in range(3)] for changes in variants]
    data, device = split(), torch.device("cuda")

    def work(number):
        return number, (yield from StackedTrainer(configs[number], data, device).run())

    for number, together in side_by_side([work(number) for number in range(len(variants))], device):
        for made, alone in zip(together, finish(StackedTrainer(configs[number], data, device).run()), strict=True):
            for name, value in weights(alone).items():
                assert torch.equal(weights(made)[name], value), (number, name)
