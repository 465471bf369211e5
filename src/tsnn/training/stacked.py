"""Training a stack: runs of one shape at once on one device, each bit for bit what it is alone.

Members share the stream, so they share the recurrence's plan. Everything else a member has for itself: weights, states,
negatives, rates, the weights of its losses, its course. The steps are those of `tsnn.training.trainer`, taken for all
members at once; the host's part of them is in `tsnn.training.stacked_plans`. Whatever takes long is work in turns
(`tsnn.training.turns`), so that stacks of other shapes can be trained beside this one.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tsnn.config import Config
from tsnn.data.question import Question
from tsnn.data.split import Split
from tsnn.engine.cuda import GROUP, plan_words
from tsnn.engine.recorded import Recorded
from tsnn.engine.stack import Reads, Stack, StackedStates, check_alike
from tsnn.errors import ConfigError
from tsnn.evaluation.evaluate import validation_questions
from tsnn.evaluation.questions import Questions
from tsnn.evaluation.scorer import Block, Step, plan_blocks
from tsnn.memory.versions import Versions
from tsnn.model.features import feature_tensor
from tsnn.model.geometry import Geometry
from tsnn.model.losses import LOSSES, OF_SCORES, contrasted, data_losses, loss_weights, score_losses
from tsnn.model.time_encoding import encode_gap
from tsnn.model.tsnn import TSNN
from tsnn.plan.ahead import ahead
from tsnn.plan.facts import COLUMN
from tsnn.plan.planner import Planner, PlanSpec
from tsnn.training.course import Course, cosine
from tsnn.training.draw import TrainingRows
from tsnn.training.optim import StackedAdamW, stacked_rates
from tsnn.training.stacked_plans import GroupChunk, group_chunks, whole_table
from tsnn.training.trainer import Trained, build_model
from tsnn.training.turns import Turns
from tsnn.training.warmup import BATCH, LR, NEGATIVES, shuffled, warm_plan
from tsnn.transfer import send
from tsnn.types import F64

WarmPlan = tuple[Tensor, np.random.Generator]  # raw features, and what draws the order of the events


class StackedTrainer:
    """Trains one model per configuration on one split, validated by the protocol of the stream's own suite."""

    def __init__(self, configs: list[Config], split: Split, device: torch.device) -> None:
        check_alike(configs)
        if any(config.train.history != "train" for config in configs):
            raise ConfigError("a population is evaluated on the rows it trains on; train such runs one by one.")
        if split.stream.num_relations or split.stream.num_types:
            raise ConfigError("a population knows no relations and no node types; train such runs one by one.")
        self.configs = configs
        self.device = device
        self.config = configs[0]  # for what all have in common
        self.stream = split.stream
        self.courses = [Course.of(config) for config in configs]
        self.models = [build_model(_on_host(config), split) for config in configs]
        self._shared = build_model(_on_host(self.config), split).to(device)  # for what is the same for all
        self._gap = self._shared.shape.mean_gap
        self._entries = 2 + 2 * self.config.model.num_neighbors  # active entries that an event can have
        self.spec = PlanSpec.of(self.config, self._gap)
        self.rows = TrainingRows.of(split, self.config.train)
        self._validation = validation_questions(split, Question.of(self.config.train))

    def run(self) -> Turns[list[Trained]]:
        """Train to the end; models of failed members have the weights of their best epoch before."""
        yield from self.start()
        while running := [course for course in self.courses if not course.is_over]:
            yield from self.train_epoch(running[0].epoch)
            yield from self._close_courses()
        return [Trained(model.eval(), course) for model, course in zip(self.models, self.courses, strict=True)]

    def start(self) -> Turns[None]:
        """All that comes before the first epoch."""
        plans = self._warm_plans() if self.courses[0].warming else None
        self.stack = Stack(self.models, self.device)
        self.states = StackedStates(self.stack, [config.train.seed for config in self.configs], self.stream.ids.keys)
        filled = [config.train for config in self.configs]
        filled += [filled[-1]] * (len(self.stack) - len(filled))
        self._weights = torch.stack([loss_weights(own.loss, self.stack.flat.dtype, self.device) for own in filled])
        self._sound = torch.ones(len(self.stack), dtype=torch.bool, device=self.device)
        if plans is not None:
            rates = torch.full_like(self.stack.flat, LR)
            for name in self.stack.updater:  # which rests meanwhile
                rates[:, self.stack.columns[name]] = 0.0
            yield from self._warm_up(plans, StackedAdamW(self.stack, rates, filled, clip=False))
        self._optimizer = StackedAdamW(self.stack, stacked_rates(self.stack, filled), filled)
        self._step = Recorded(self._one_step)
        self._total_steps = self.config.train.epochs * self.rows.steps

    def evaluate(self, questions: Questions) -> Turns[F64]:
        """The answers of every member with its best weights, (members, queries, columns)."""
        self.stack = Stack(self.models, self.device)
        self.states.stack = self.stack
        return (yield from self._answers(questions))

    def _send(self, array: NDArray[Any]) -> Tensor:
        return send(array, self.device)

    def train_epoch(self, epoch: int) -> Turns[None]:
        """One pass over the training rows."""
        self.states.reset_state()
        plans = [
            ahead(group_chunks(self.configs[start : start + GROUP], GROUP, self.rows, self.spec, epoch))
            for start in range(0, len(self.configs), GROUP)
        ]
        for chunks in zip(*plans, strict=True):
            self._train_chunk(list(chunks))
            yield

    def _train_chunk(self, chunks: list[GroupChunk]) -> None:
        """Every minibatch of the chunk's queries, then its last states into the store."""
        update = chunks[0].update
        queries = chunks[0].reads.shape[1]
        length = self.config.train.chunk
        whole = whole_table(update, self.stream.num_nodes, update.num_events * self._entries)
        rows = [self._send(words) for words in (plan_words(whole), whole.final_h, whole.final_F)]
        context = self._shared.context(update, self.stream)
        if not queries:
            self._step(context, *rows)
        facts = [self._send(chunk.facts) for chunk in chunks]
        for start in range(0, queries, length):
            sent = [self._send(chunk.reads[:, start : start + length]) for chunk in chunks]
            factors = self._optimizer.next_factors(cosine(self._optimizer.steps, self._total_steps))
            self._step(context, *rows, factors, *(part for both in zip(sent, facts, strict=True) for part in both))
        self.states.move_on()

    def _one_step(self, context: Tensor, words: Tensor, last_h: Tensor, last_F: Tensor, *rest: Tensor) -> None:
        """The recurrence of a chunk; and where there are queries, their gradients and one step of every member."""
        with torch.set_grad_enabled(bool(rest)):
            versions = self.states.update_all(words, context, len(context) * self._entries)
        if rest:
            factors, *reads = rest
            self.stack.grad.zero_()
            self._backward(versions, reads)
            self._optimizer.step(factors)
        self.states.set_aside(versions, last_h, last_F)

    def _backward(self, versions: Versions, reads: list[Tensor]) -> None:
        """Gradients of all losses of one minibatch, kept in the stack; `reads` has two tensors a group."""
        train = self.config.train
        up_h = torch.empty_like(versions.h)
        up_F = torch.empty_like(versions.F)
        for group, at in enumerate(self.stack.groups):
            h, F = (log.detach()[at].requires_grad_() for log in (versions.h, versions.F))
            parts, geometry = self.stack.score(group, h, F, self._reads(group, *reads[2 * group : 2 * group + 2]))
            terms = parts.total, contrasted(geometry, train.loss), parts.raw_residual
            values = score_losses(*terms, width=1 + train.negatives, temperature=train.loss.geo_temperature)
            loss = (values * self._weights[at, : len(OF_SCORES)]).sum()
            up_h[at], up_F[at] = self.stack.head_gradients(loss, group, h, F)
            self._sound[at] &= values.isfinite().all(1)
        events = versions.energy.shape[1]
        smooth, energy = (self._weights[:, LOSSES.index(name), None] / events for name in ("smooth", "energy"))
        upstream = Versions(up_h, up_F, energy.expand_as(versions.energy), smooth.expand_as(versions.smooth))
        self.stack.updater_gradients(versions, upstream)

    def _reads(self, group: int, index: Tensor, facts: Tensor) -> Reads:
        """A group's minibatch as the score takes it; see `GroupChunk`."""
        width = 1 + self.config.train.negatives
        src_h, src_F, cand_h, cand_F, pick = torch.split(index.long(), [1, 1, width, width, width], dim=2)
        data = self._data(group, self._raw(facts)[pick.flatten(1)])
        return Reads(src_h.squeeze(2), src_F.squeeze(2), cand_h, cand_F, *data)

    def _raw(self, facts: Tensor) -> Tensor:
        """Of each row of facts: its features, not yet standardized, encoded gaps, and last the EdgeBank's count."""
        config = self.config
        columns = [feature_tensor(facts, config.features, gaps=config.model.gaps, mean_gap=self._gap)]
        if config.features.encoded_gaps:
            dim = config.model.time_dim
            scale = self._shared.time_scale
            columns += [encode_gap(facts[:, COLUMN[gap]], dim, scale) for gap in ("src_gap", "dst_gap")]
        return torch.cat([*columns, facts[:, COLUMN["bank_count"], None]], dim=1)

    def _data(self, group: int, raw: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of `_raw` (G, candidates, columns) with standardized features, and the EdgeBank's count."""
        at, buffers = self.stack.groups[group], self.stack.buffers
        shift, scale = (buffers[f"feature_{name}"][at, None] for name in ("shift", "scale"))
        features = raw[..., : shift.shape[2]].sub(shift).div_(scale)
        gaps = raw[..., shift.shape[2] : -1]
        return torch.cat([features, gaps], dim=2) if gaps.shape[2] else features, raw[..., -1]

    def _warm_plans(self) -> list[WarmPlan]:
        """Each member's events for the warm-up; also fits the standardization of its features."""

        def make(model: TSNN) -> WarmPlan:
            plan, rng = warm_plan(model, self.rows)
            raw = self._raw(torch.from_numpy(plan.facts.astype(self.config.train.dtype)))
            model.standardize(raw[:, : len(model.feature_shift)])
            model.head.geometry_weight.fill_(0.0)
            return raw, rng

        with ThreadPoolExecutor() as pool:
            return list(pool.map(make, self.models))

    def _warm_up(self, plans: list[WarmPlan], optimizer: StackedAdamW) -> Turns[None]:
        """See `tsnn.training.warmup`."""
        width = 1 + NEGATIVES
        queries = len(plans[0][0]) // width
        member = np.minimum(np.arange(len(self.stack)), len(plans) - 1)  # copies learn what the last one learns
        table = [torch.stack([raw.to(self.device) for raw, _ in plans[at]]) for at in self.stack.groups]

        def one_step(factors: Tensor, *picks: Tensor) -> None:
            self.stack.grad.zero_()
            for group, pick in enumerate(picks):
                self._warm_gradients(group, table[group], pick)
            optimizer.step(factors)

        step = Recorded(one_step)
        epochs = self.config.train.warmup
        assert epochs != "search"  # `check_alike` refuses it
        for drawn in zip(*(shuffled(queries, epochs, rng) for _, rng in plans), strict=True):
            factor = drawn[0][0]
            orders = np.stack([order for _, order in drawn]).astype(np.int32)
            for start in range(0, queries, BATCH):
                rows = orders[member, start : start + BATCH, None] * np.int32(width) + np.arange(width, dtype=np.int32)
                step(optimizer.next_factors(factor), *(self._send(rows[at]) for at in self.stack.groups))
            yield
        yield from self._close_courses()
        self.stack.buffers["head.geometry_weight"].fill_(1.0)

    def _warm_gradients(self, group: int, raw: Tensor, pick: Tensor) -> None:
        """Of a group's heads, on data alone; `raw` has its members, of which copies read the last."""
        own = torch.arange(len(pick), device=self.device).clamp_(max=len(raw) - 1)[:, None]
        data, bank = self._data(group, raw[own, pick.flatten(1).long()])
        nothing = torch.zeros_like(bank)
        total = self.stack.decode(group, Geometry(nothing, nothing, nothing, nothing), data, bank).total
        values = data_losses(total, width=pick.shape[2])
        weights = self._weights[self.stack.groups[group], : values.shape[1]]
        self.stack.head_gradients((values * weights).sum(), group)

    def _close_courses(self) -> Turns[None]:
        """Validate every member that still runs; the weights that are its best so far become its model's."""
        for course, sound in zip(self.courses, self._sound.tolist(), strict=False):
            course.failed = course.failed or not sound
        answers = yield from self._answers(self._validation)
        for i, course in enumerate(self.courses):
            if course.is_over:
                continue
            metric = self._validation.validation(answers[i]) if np.isfinite(answers[i]).all() else None
            if course.close(metric):
                self.stack.write(i, self.models[i])

    def _answers(self, questions: Questions) -> Turns[F64]:
        """Replay the stream for every member; a block's scores are read while the device works on the next."""
        asked = questions.asked
        answers = np.empty((len(self.models), len(asked), questions.columns))

        def keep(step: Step, scores: Tensor) -> None:
            ptr = asked.ptr[step.first : step.last + 1] - asked.ptr[step.first]
            for own, found in zip(answers, scores[: len(self.models)].cpu().numpy(), strict=True):
                sound = np.isfinite(found).all()  # the weights of a failed member may be no numbers
                own[step.first : step.last] = questions.answers(found, ptr) if sound else np.nan

        self.states.reset_state()
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
        versions = self.states.update(block.update, self._shared.context(block.update, self.stream))
        self.states.commit(block.update, versions)
        plan = block.score
        out = versions.h.new_empty(len(self.stack), len(plan.cand), dtype=torch.float64)
        if not len(plan.cand):
            return out
        each = np.repeat(np.arange(len(plan)), np.diff(plan.ptr))  # candidates one by one, with the rows of their query
        codes = (plan.src_h[each], plan.src_F[each], plan.cand_h[:, None], plan.cand_F[:, None])
        src_h, src_F, cand_h, cand_F = (self._send(code).long().expand(GROUP, *code.shape) for code in codes)
        raw = self._raw(self._send(plan.facts.astype(self.config.train.dtype))).expand(GROUP, -1, -1)
        for group, at in enumerate(self.stack.groups):
            reads = Reads(src_h, src_F, cand_h, cand_F, *self._data(group, raw))
            out[at] = self.stack.score(group, versions.h[at], versions.F[at], reads).parts.total.double()
        return out


def _on_host(config: Config) -> Config:
    """The same run on the host, where weights are drawn and kept."""
    train = config.train.model_copy(update={"device": "cpu", "engine": "auto"})
    return config.model_copy(update={"train": train})
