"""The warm head: as long as validation gains, on the columns that do best, with vectors of partners if they help."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.engine.streams import config_of
from tsnn.data.events import EventStream, NodeIds
from tsnn.data.question import Question
from tsnn.data.split import Split, split_by_time
from tsnn.evaluation.contracts import tied_stream
from tsnn.evaluation.evaluate import validation_questions
from tsnn.evaluation.features import FLOOR
from tsnn.evaluation.model import COUNTS_ONLY, VECTORS_ONLY, ModelScorer, remark_of
from tsnn.evaluation.replay import figures
from tsnn.model.features import feature_names
from tsnn.training import warmup
from tsnn.training.draw import TrainingRows
from tsnn.training.trainer import Trained, Trainer, build_model

SIZES = {"train__dtype": "float32", "train__epochs": 0, "model__stalk_dim": 8, "model__attention_heads": 2}


def tastes(events: int = 2400, groups: int = 4, seed: int = 0) -> EventStream:
    """Every source likes one group of items and takes each of them at most once: counts of pairs say nothing."""
    rng = np.random.default_rng(seed)
    users, items, taken = 120, 120, set()
    src, dst = [], []
    while len(src) < events:
        u = int(rng.integers(users))
        v = int(rng.integers(items // groups)) * groups + u % groups
        if (u, v) not in taken:
            taken.add((u, v))
            src.append(u)
            dst.append(users + v)
    ids = NodeIds([str(node) for node in range(users + items)])
    return EventStream(np.array(src), np.array(dst), np.arange(events, dtype=np.float64), ids)


def train(split: Split, **settings: object) -> Trained:
    config = config_of(**SIZES | settings)
    questions = validation_questions(split, Question())

    def validate(model):
        return questions.choice(figures(ModelScorer(model, split.stream), split.stream, questions).metrics["val"])

    return Trainer(config, split, validate).run()


@pytest.fixture(scope="module")
def told() -> tuple[Trained, Trained]:
    """A stream of tastes, with vectors of partners and without."""
    split = split_by_time(tastes())
    walks_off = {"train__warmup": 4, "features__walks": False, "features__two_hop": False}
    return tuple(train(split, model__partners=on, **walks_off) for on in (True, False))  # type: ignore[return-value]


def test_vectors_tell_what_counts_cannot(told):
    learned, plain = told
    assert learned.course.head["partners"] > 0
    assert learned.course.best_metric > plain.course.best_metric + 5
    assert remark_of(learned.model) == VECTORS_ONLY
    assert remark_of(plain.model) == COUNTS_ONLY


def test_the_figure_that_decides_is_the_figure_of_the_run(told):
    """The judge of heads, who plans everything once, and a replay of the stream see the same."""
    split = split_by_time(tastes())
    model = told[0].model
    rows = TrainingRows.of(split, model.config.train)
    lesson = warmup.Lesson(build_model(model.config, split), rows, np.random.default_rng(0))
    lesson.model.load_state_dict(model.state_dict())
    judge = lesson.judge(validation_questions(split, Question()))
    assert judge(lesson.model) == pytest.approx(told[0].course.best_metric, abs=0.02)


def test_nodes_that_training_never_met_share_a_vector(told):
    partners = told[0].model.partners
    rows = split_by_time(tastes()).train_end
    stream = tastes()
    met = np.zeros(stream.num_nodes, np.bool_)
    met[stream.src[:rows]] = met[stream.dst[:rows]] = True
    assert partners.met[1:].tolist() == met.tolist()
    later = torch.tensor([stream.num_nodes, stream.num_nodes + 7])
    assert torch.equal(partners.of(later), partners.vectors[[0, 0]])


def test_where_they_do_not_help_they_are_off():
    """Random partners: what is learned of them is chance, which validation rows do not share."""
    rng = np.random.default_rng(3)
    ends = rng.integers(0, 60, (1500, 2))
    ids = NodeIds([str(node) for node in range(60)])
    split = split_by_time(EventStream(ends[:, 0], ends[:, 1], np.arange(1500.0), ids))
    trained = train(split, model__partners=True, train__warmup=2)
    assert trained.course.head["partners"] == 0
    assert not trained.model.reads_partners
    assert trained.model.plan_spec.attention == 0


def test_a_search_stops_and_keeps_the_best(monkeypatch):
    monkeypatch.setattr(warmup, "MOST_EPOCHS", 6)
    monkeypatch.setattr(warmup, "PATIENCE", 2)
    split = split_by_time(tied_stream())
    config = config_of(**SIZES | {"train__warmup": "search", "features__walks": True})
    model = build_model(config, split)
    rows = TrainingRows.of(split, config.train)
    lesson = warmup.Lesson(model, rows, np.random.default_rng(0))
    questions = validation_questions(split, Question())
    judge, heard = lesson.judge(questions), []

    def listen(model):
        heard.append((judge(model), int(torch.isinf(model.feature_scale).sum())))
        return heard[-1][0]

    warm = warmup._search(lesson, listen, np.random.default_rng(0))
    assert judge(model) == max(figure for figure, _ in heard)
    left_out = {"all": 0, "without walks": 20}.get(warm.columns)
    assert left_out is None or int(torch.isinf(model.feature_scale).sum()) == left_out
    assert {count for _, count in heard} >= {0, 20}, "columns were left out"


def test_a_head_on_the_floors_columns_reads_no_other_fact():
    split = split_by_time(tied_stream())
    model = build_model(config_of(**SIZES | {"features__walks": True, "train__warmup": 1}), split)
    warmup._leave_out(model, torch.ones_like(model.feature_scale), warmup.BLOCKS_LEFT_OUT["the floor's"])
    on = torch.isfinite(model.feature_scale)
    names = feature_names(model.config.features)
    assert {name for name, used in zip(names, on.tolist(), strict=True) if used} == set(feature_names(FLOOR))


def test_thinned_questions_are_some_of_all(told):
    split = split_by_time(tastes())
    whole = validation_questions(split, Question())
    few = whole.thinned(int(whole.asked.ptr[-1]) // 3)
    assert 0 < len(few.asked) <= len(whole.asked) // 3 + 1
    assert whole.thinned(10**9) is whole
    first, other = few.asked.slice(0, 1), whole.asked.slice(0, 1)
    assert np.array_equal(first.cand, other.cand)
    second = few.asked.slice(1, 2)
    step = -(-len(whole.asked) // len(few.asked))
    assert np.array_equal(second.cand, whole.asked.slice(step, step + 1).cand)


def test_a_stopped_run_goes_on_with_its_vectors(tmp_path):
    """The warm-up is over at the first checkpoint; what it learned is in it."""
    split = split_by_time(tastes(1200))
    settings = {"train__warmup": 2, "model__partners": True, "train__epochs": 2, "train__chunk": 50}
    config = config_of(**SIZES | settings)

    def validate_until(calls: int):
        heard = iter(range(calls))

        def validate(model):
            if next(heard, None) is None:
                raise KeyboardInterrupt
            return 0.0

        return validate

    for folder in ("whole", "stopped"):
        (tmp_path / folder).mkdir()
    whole = Trainer(config, split, lambda model: 0.0, tmp_path / "whole")
    expected = whole.run().model.state_dict()
    with pytest.raises(KeyboardInterrupt):
        Trainer(config, split, validate_until(2), tmp_path / "stopped").run()
    again = Trainer(config, split, lambda model: 0.0, tmp_path / "stopped")
    found = again.run().model.state_dict()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert again.course.head == whole.course.head
