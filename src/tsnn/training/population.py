"""Training a population: runs of one shape at once on one device, each bit for bit what it is alone.

Members share the stream, so they share the recurrence's plan. Everything else a member has for itself: weights, states,
negatives, rates, the weights of its losses, its best epoch. The steps are those of `tsnn.training.trainer`, written for
all members at once; the host's part of them is in `tsnn.training.population_plans`. Whatever takes long is a work in
turns (`tsnn.training.turns`), so that populations of other shapes can be trained beside this one.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tsnn.config import Config
from tsnn.data.negatives import NegativePool
from tsnn.data.question import Question
from tsnn.data.split import Split
from tsnn.engine.cuda import GROUP, plan_words
from tsnn.engine.population import Population, Reads, Scores, Stack, check_alike
from tsnn.engine.recorded import Recorded
from tsnn.errors import ConfigError
from tsnn.evaluation.evaluate import validation_questions
from tsnn.evaluation.questions import Questions
from tsnn.evaluation.scorer import Block, Step, plan_blocks
from tsnn.memory.versions import Versions
from tsnn.model.features import feature_tensor
from tsnn.model.losses import LOSSES
from tsnn.model.time_encoding import encode_gap
from tsnn.model.tsnn import TSNN
from tsnn.plan.ahead import ahead
from tsnn.plan.chunk import ScorePlan
from tsnn.plan.facts import COLUMN
from tsnn.plan.planner import Planner, PlanSpec
from tsnn.training.draw import chunk_bounds
from tsnn.training.optim import StackedAdamW, cosine, stacked_rates
from tsnn.training.population_plans import GroupChunk, group_chunks, whole_table
from tsnn.training.trainer import Trained, build_model
from tsnn.training.turns import Turns
from tsnn.training.warmup import BATCH, LR, NEGATIVES, training_plan
from tsnn.transfer import send
from tsnn.types import F64

SCORED = ("ce", "binary", "geo", "bias")  # losses of the scores; the others are means over the chunk's events
WarmPlan = tuple[Tensor, np.random.Generator]  # raw features, and what draws the order of the events


@dataclass
class Member:
    """The course of one run."""

    config: Config
    best_metric: float = -math.inf
    best_epoch: int = -1
    epochs: int = 0
    failed: bool = False  # its loss became no number
    history: tuple[float, ...] = ()  # validation AP, first that of the warm head

    @property
    def is_over(self) -> bool:
        """Whether further epochs no longer count."""
        return self.failed or self.epochs - 1 - self.best_epoch >= self.config.train.patience


class PopulationTrainer:
    """Trains one model per configuration on one split, validated by the protocol of the stream's own suite."""

    def __init__(self, configs: list[Config], split: Split, device: torch.device) -> None:
        check_alike(configs)
        if split.stream.num_relations or split.stream.num_types:
            raise ConfigError("a population knows no relations and no node types; train such runs one by one.")
        self.config, self.split, self.stream, self.device = configs[0], split, split.stream, device
        self.members = [Member(config) for config in configs]
        self.models = [build_model(_on_host(config), split) for config in configs]
        self._shared = build_model(_on_host(configs[0]), split).to(device)  # for what is the same for all
        self._gap = self._shared.shape.mean_gap
        self.spec = PlanSpec.of(self.config, self._gap)
        question = Question.of(self.config.train)
        self._cuts = question.cuts(split)[: split.train_end]
        self._pool = NegativePool.build(self.stream, split.train_end, question)
        self._validation = validation_questions(split, question)

    def run(self) -> Turns[list[Trained]]:
        """Train to the end; models of failed members have the weights of their best epoch before."""
        yield from self.start()
        for epoch in range(self.config.train.epochs):
            if all(member.is_over for member in self.members):
                break
            yield from self.train_epoch(epoch)
            yield from self._close_epoch()
        return [self._trained(i) for i in range(len(self.members))]

    def start(self) -> Turns[None]:
        """All that comes before the first epoch."""
        train = self.config.train
        plans = self._warm_plans() if train.warmup and self.config.model.residual else None
        self.stack = Stack(self.models, self.device)
        self.population = Population(self.stack, [m.config.train.seed for m in self.members], self.stream.ids.keys)
        filled = [member.config.train for member in self.members]
        filled += [filled[-1]] * (len(self.stack) - len(filled))
        weights = [[getattr(own.loss, name) for name in LOSSES] for own in filled]
        self._weights = torch.tensor(weights, device=self.device, dtype=self.stack.flat.dtype)
        self._sound = torch.ones(len(self.stack), dtype=torch.bool, device=self.device)
        if plans is not None:
            yield from self._warm_up(plans, StackedAdamW(self.stack, self._warm_rates(), filled, clip=False))
        self._optimizer = StackedAdamW(self.stack, stacked_rates(self.stack, filled), filled)
        self._step, self._steps = Recorded(self._one_step), 0
        chunks = chunk_bounds(self._cuts, train.chunk)
        self._total_steps = train.epochs * sum(-(-(last - first) // train.chunk) for _, _, first, last in chunks)

    def evaluate(self, questions: Questions) -> Turns[F64]:
        """The answers of every member with its best weights, (members, queries, columns)."""
        self.stack = self.population.stack = Stack(self.models, self.device)
        return (yield from self._answers(questions))

    def _trained(self, i: int) -> Trained:
        member = self.members[i]
        return Trained(self.models[i].eval(), member.best_metric, member.best_epoch, member.epochs)

    def _send(self, array: NDArray[Any]) -> Tensor:
        return send(array, self.device)

    # Training

    def train_epoch(self, epoch: int) -> Turns[None]:
        """One pass over the training rows."""
        self.population.reset_state()
        configs = [member.config for member in self.members]
        shared = (self.split, self._cuts, self._pool, self.spec, epoch)
        plans = [
            ahead(group_chunks(configs[start : start + GROUP], GROUP, *shared))
            for start in range(0, len(configs), GROUP)
        ]
        for chunks in zip(*plans, strict=True):
            self._train_chunk(list(chunks))
            yield

    def _train_chunk(self, chunks: list[GroupChunk]) -> None:
        """Every minibatch of the chunk's queries, then its last states into the store."""
        update, queries, length = chunks[0].update, chunks[0].reads.shape[1], self.config.train.chunk
        whole = whole_table(update, self.stream.num_nodes, self._capacity(update.num_events))
        rows = [self._send(words) for words in (plan_words(whole), whole.final_h, whole.final_F)]
        context = self._shared.context(update, self.stream)
        if not queries:
            self._step(context, *rows)
        facts = [self._send(chunk.facts) for chunk in chunks]
        for start in range(0, queries, length):
            sent = [self._send(chunk.reads[:, start : start + length]) for chunk in chunks]
            factors = self._optimizer.next_factors(cosine(self._steps, self._total_steps))
            self._steps += 1
            self._step(context, *rows, factors, *(part for both in zip(sent, facts, strict=True) for part in both))
        self.population.settle()

    def _capacity(self, events: int) -> int:
        """Active entries that so many events can have."""
        return events * (2 + 2 * self.config.model.num_neighbors)

    def _one_step(self, context: Tensor, words: Tensor, last_h: Tensor, last_F: Tensor, *rest: Tensor) -> None:
        """The recurrence of a chunk; and where there are queries, their gradients and one step of every member."""
        with torch.set_grad_enabled(bool(rest)):
            versions = self.population.update_all(words, context, self._capacity(len(context)))
        if rest:
            factors, *reads = rest
            self.stack.grad.zero_()
            self._backward(versions, reads)
            self._optimizer.step(factors)
        self.population.propose(versions, last_h, last_F)

    def _backward(self, versions: Versions, reads: list[Tensor]) -> None:
        """Gradients of all losses of one minibatch, kept in the stack; `reads` has two tensors a group."""
        temperature, events = self.config.train.loss.geo_temperature, versions.energy.shape[1]
        up_h, up_F = torch.empty_like(versions.h), torch.empty_like(versions.F)
        for group, at in enumerate(self.stack.groups):
            h, F = (log.detach()[at].requires_grad_() for log in (versions.h, versions.F))
            scores = self.stack.score(group, h, F, self._reads(group, *reads[2 * group : 2 * group + 2]))
            values = score_losses(scores, temperature)
            loss = (values * self._weights[at, : len(SCORED)]).sum()
            up_h[at], up_F[at] = self.stack.head_gradients(loss, group, h, F)
            self._sound[at] &= values.isfinite().all(1)
        smooth, energy = ((self._weights[:, LOSSES.index(name), None] / events) for name in ("smooth", "energy"))
        means = energy.expand_as(versions.energy), smooth.expand_as(versions.smooth)
        self.stack.updater_gradients(versions, Versions(up_h, up_F, *means))

    def _reads(self, group: int, index: Tensor, facts: Tensor) -> Reads:
        """A group's minibatch as the score takes it; see `GroupChunk`."""
        width = 1 + self.config.train.negatives
        src_h, src_F, cand_h, cand_F, pick = torch.split(index.long(), [1, 1, width, width, width], dim=2)
        data, bank = self._data(group, self._raw(facts)[pick.flatten(1)])
        return Reads(src_h.squeeze(2), src_F.squeeze(2), cand_h, cand_F, data, bank)

    def _raw(self, facts: Tensor) -> Tensor:
        """Of each row of facts: its features, not yet standardized, encoded gaps, and last the EdgeBank's count."""
        config = self.config
        columns = [feature_tensor(facts, config.features, gaps=config.model.gaps, mean_gap=self._gap)]
        if config.features.encoded_gaps:
            dim, scale = config.model.time_dim, self._shared.time_scale
            columns += [encode_gap(facts[:, COLUMN[gap]], dim, scale) for gap in ("src_gap", "dst_gap")]
        return torch.cat([*columns, facts[:, COLUMN["bank_count"], None]], dim=1)

    def _data(self, group: int, raw: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of `_raw` (G, candidates, columns) with standardized features, and the EdgeBank's count."""
        at, buffers = self.stack.groups[group], self.stack.buffers
        shift, scale = (buffers[f"feature_{name}"][at, None] for name in ("shift", "scale"))
        features, gaps = raw[..., : shift.shape[2]].sub(shift).div_(scale), raw[..., shift.shape[2] : -1]
        return torch.cat([features, gaps], dim=2) if gaps.shape[2] else features, raw[..., -1]

    # Warming up

    def _warm_plans(self) -> list[WarmPlan]:
        """Each member's events for the warm-up; also fits the standardization of its features."""

        def make(model: TSNN) -> WarmPlan:
            rng = np.random.default_rng([model.config.train.seed, len(self._cuts)])
            plan = training_plan(model, self.split, self._cuts, self._pool, rng)
            raw = self._raw(torch.from_numpy(plan.facts.astype(self.config.train.dtype)))
            model.standardize(raw[:, : len(model.feature_shift)])
            model.head.geometry_weight.fill_(0.0)
            return raw, rng

        with ThreadPoolExecutor() as pool:
            return list(pool.map(make, self.models))

    def _warm_rates(self) -> Tensor:
        """The updater rests meanwhile."""
        rates = torch.full_like(self.stack.flat, LR)
        for name in self.stack.names:
            if name.startswith("updater."):
                rates[:, self.stack.place(name)] = 0.0
        return rates

    def _warm_up(self, plans: list[WarmPlan], optimizer: StackedAdamW) -> Turns[None]:
        """See `tsnn.training.warmup`."""
        epochs, width = self.config.train.warmup, 1 + NEGATIVES
        queries = len(plans[0][0]) // width
        groups = [plans[start : start + GROUP] for start in range(0, len(plans), GROUP)]
        table = [torch.stack([raw.to(self.device) for raw, _ in group]) for group in groups]

        def one_step(factors: Tensor, *picks: Tensor) -> None:
            self.stack.grad.zero_()
            for group, pick in enumerate(picks):
                self._warm_gradients(group, table[group], pick)
            optimizer.step(factors)

        step = Recorded(one_step)
        for epoch in range(epochs):
            orders = np.stack([rng.permutation(queries) for _, rng in plans]).astype(np.int32)
            for start in range(0, queries, BATCH):
                rows = orders[:, start : start + BATCH, None] * np.int32(width) + np.arange(width, dtype=np.int32)
                picks = [self._send(rows[self._slots(group)]) for group in range(len(groups))]
                step(optimizer.next_factors(1.0 - epoch / epochs), *picks)
            yield
        yield from self._keep_the_best()
        self.stack.buffers["head.geometry_weight"].fill_(1.0)

    def _warm_gradients(self, group: int, raw: Tensor, pick: Tensor) -> None:
        """Of a group's heads, on data alone; `raw` has its members, of which copies read the last."""
        own = torch.arange(len(pick), device=self.device).clamp_(max=len(raw) - 1)[:, None]
        data, bank = self._data(group, raw[own, pick.flatten(1).long()])
        nothing = torch.zeros_like(pick, dtype=raw.dtype)
        values = score_losses(self.stack.decode(group, (nothing,) * 4, data, bank), 1.0)[:, :2]
        self.stack.head_gradients((values * self._weights[self.stack.groups[group], :2]).sum(), group)

    def _slots(self, group: int) -> list[int]:
        """The member in each place of a group."""
        last = len(self.members) - 1
        return [min(group * GROUP + i, last) for i in range(GROUP)]

    # Validation

    def _close_epoch(self) -> Turns[None]:
        for member, sound in zip(self.members, self._sound.tolist(), strict=False):
            member.failed = member.failed or not sound
        running = [member for member in self.members if not member.is_over]
        yield from self._keep_the_best()
        for member in running:
            member.epochs += 1

    def _keep_the_best(self) -> Turns[None]:
        """The validation figure of the present weights, which become a member's best if they are."""
        answers = yield from self._answers(self._validation)
        weight = self.stack.buffers["head.geometry_weight"].tolist()
        for i, member in enumerate(self.members):
            if member.is_over or not np.isfinite(answers[i]).all():
                continue
            metric = self._validation.validation(answers[i])
            member.history = (*member.history, metric)
            if metric > member.best_metric:
                member.best_metric = metric
                member.best_epoch = member.epochs if weight[i] else -1
                self.stack.write(i, self.models[i])

    def _answers(self, questions: Questions) -> Turns[F64]:
        """Replay the stream for every member; a block's scores are read while the device works on the next.

        Where a member's weights are no numbers, neither are its answers.
        """
        asked, answers = questions.asked, np.empty((len(self.members), len(questions.asked), questions.columns))

        def keep(step: Step, scores: Tensor) -> None:
            ptr = asked.ptr[step.first : step.last + 1] - asked.ptr[step.first]
            for own, found in zip(answers, scores[: len(self.members)].cpu().numpy(), strict=True):
                sound = np.isfinite(found).all()
                own[step.first : step.last] = questions.answers(found, ptr) if sound else np.nan

        self.population.reset_state()
        unread: tuple[Step, Tensor] | None = None
        for step, block in ahead(plan_blocks(Planner(self.stream, self.spec), asked)):
            scores = self._replay(block)
            if unread is not None:
                keep(*unread)
            unread = (step, scores) if step.last > step.first else None
            yield
        if unread is not None:
            keep(*unread)
        return answers

    @torch.no_grad()
    def _replay(self, block: Block) -> Tensor:
        """Run the block's rows; the scores of its candidates, (stack, candidates)."""
        versions = self.population.update(block.update, self._shared.context(block.update, self.stream))
        out = versions.h.new_empty(len(self.stack), len(block.score.cand), dtype=torch.float64)
        if out.shape[1]:
            self._score_block(block.score, versions, out)
        self.population.commit(block.update, versions)
        return out

    def _score_block(self, plan: ScorePlan, versions: Versions, out: Tensor) -> None:
        """Every candidate for itself, whatever query it belongs to."""
        each = np.repeat(np.arange(len(plan)), np.diff(plan.ptr))
        codes = (plan.src_h[each], plan.src_F[each], plan.cand_h[:, None], plan.cand_F[:, None])
        src_h, src_F, cand_h, cand_F = (self._send(rows).long().expand(GROUP, *rows.shape) for rows in codes)
        raw = self._raw(self._send(plan.facts.astype(self.config.train.dtype))).expand(GROUP, -1, -1)
        for group, at in enumerate(self.stack.groups):
            reads = Reads(src_h, src_F, cand_h, cand_F, *self._data(group, raw))
            out[at] = self.stack.score(group, versions.h[at], versions.F[at], reads).total[..., 0].double()


def score_losses(scores: Scores, temperature: float) -> Tensor:
    """The losses of `SCORED` for every member, (G, 4); see `tsnn.model.losses`."""
    total, inner, residual = scores
    softplus = torch.nn.functional.softplus
    ranking = -torch.log_softmax(total, dim=2)[..., 0].mean(1)
    binary = 0.5 * (softplus(-total[..., 0]) + softplus(total[..., 1:]).mean(2)).mean(1)
    geo = -torch.log_softmax(inner / temperature, dim=2)[..., 0].mean(1)
    return torch.stack([ranking, binary, geo, residual.square().mean((1, 2))], dim=1)


def _on_host(config: Config) -> Config:
    """The same run on the host, where weights are drawn and kept."""
    train = config.train.model_copy(update={"device": "cpu", "engine": "auto"})
    return config.model_copy(update={"train": train})
