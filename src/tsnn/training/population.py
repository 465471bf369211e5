"""Training a population: runs of one shape at once on one device, each bit for bit what it is alone.

Members share the stream, so they share the recurrence's plan, and one pass of the counters finds the facts of the
negatives of a whole group. Everything else a member has for itself: weights, states, negatives, rates, the weights of
its losses, its best epoch. The steps are those of `tsnn.training.trainer`, written for all members at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tsnn.config import Config
from tsnn.data.negatives import NegativePool
from tsnn.data.queries import Queries
from tsnn.data.split import Split
from tsnn.engine.cuda import GROUP, plan_words
from tsnn.engine.population import Population, Reads, Scores, Stack, check_alike, to_device
from tsnn.engine.recorded import Recorded
from tsnn.errors import ConfigError
from tsnn.evaluation.dgb import DgbQuestions
from tsnn.evaluation.scorer import plan_blocks
from tsnn.memory.versions import Versions
from tsnn.model.features import feature_matrix
from tsnn.model.losses import LOSSES
from tsnn.model.tsnn import TSNN
from tsnn.plan.ahead import ahead
from tsnn.plan.chunk import ChunkPlan, ScorePlan, UpdatePlan
from tsnn.plan.facts import COLUMN
from tsnn.plan.planner import Planner, PlanSpec
from tsnn.training.draw import chunk_bounds, draw_rows, training_queries
from tsnn.training.optim import StackedAdamW, cosine, stacked_rates
from tsnn.training.trainer import Trained, build_model
from tsnn.training.warmup import BATCH, LR, NEGATIVES, training_plan
from tsnn.types import F64, I64, Visibility

Rows = NDArray[np.integer[Any]]
_POINTERS = ("src_h", "dst_h", "src_F", "dst_F", "act_h", "act_F")
_ACTIVE = ("act_h", "act_F", "mult_src", "mult_dst")
SCORED = ("ce", "binary", "geo", "bias")  # losses of the scores; the others are means over the chunk's events


class GroupChunk(NamedTuple):
    """A chunk as planned for one group: the plan of all its queries together, and each member's own order of them."""

    plan: ChunkPlan
    features: Tensor  # of every candidate, raw
    query: I64  # (G, q) position of a member's queries in the plan
    pick: I64  # (G, q, width) of their candidates


@dataclass
class Member:
    """The course of one run."""

    config: Config
    best_metric: float = -math.inf
    best_epoch: int = -1
    epochs: int = 0
    failed: bool = False  # its loss became no number
    history: tuple[float, ...] = ()

    @property
    def is_over(self) -> bool:
        """Whether further epochs no longer count."""
        return self.failed or self.epochs - 1 - self.best_epoch >= self.config.train.patience


class PopulationTrainer:
    """Trains one model per configuration on one split, validated by AP under the DGB protocol."""

    def __init__(self, configs: list[Config], split: Split, device: torch.device) -> None:
        check_alike(configs)
        if split.stream.num_relations or split.stream.num_types:
            raise ConfigError("a population knows no relations and no node types; train such runs one by one.")
        self.config, self.split, self.stream, self.device = configs[0], split, split.stream, device
        self.members = [Member(config) for config in configs]
        self.models = [build_model(_on_host(config), split) for config in configs]
        self._shared = build_model(_on_host(configs[0]), split).to(device)  # for what is the same for all
        self.spec = PlanSpec.of(self.config, self._shared.shape.mean_gap)
        self.visibility = Visibility.parse(self.config.train.visibility)
        self._cuts = self.visibility.cuts(self.stream.t, split.segment_starts)[: split.train_end]
        self._pool = NegativePool.build(self.stream, split.train_end)
        self._validation = DgbQuestions(split, self.visibility, sets=("val",))

    def run(self) -> list[Trained]:
        """Train to the end; models of failed members have the weights of their best epoch before."""
        train = self.config.train
        if train.warmup and self.config.model.residual:
            plans = self._warm_plans()
        self.stack = Stack(self.models, self.device)
        self.population = Population(self.stack, [m.config.train.seed for m in self.members], self.stream.ids.keys)
        self._sound = torch.ones(len(self.stack), dtype=torch.bool, device=self.device)
        weights = [[getattr(c.train.loss, name) for name in LOSSES] for c in self._padded_configs()]
        self._weights = torch.tensor(weights, device=self.device, dtype=self.stack.flat.dtype)
        if train.warmup and self.config.model.residual:
            self._warm_up(plans)
        trains = [config.train for config in self._padded_configs()]
        self._optimizer = StackedAdamW(self.stack, stacked_rates(self.stack, trains), trains)
        self._step, self._steps = Recorded(self._one_step), 0
        steps = sum(-(-(last - first) // train.chunk) for _, _, first, last in chunk_bounds(self._cuts, train.chunk))
        for epoch in range(train.epochs):
            if all(member.is_over for member in self.members):
                break
            self._train_epoch(epoch, train.epochs * steps)
            self._close_epoch()
        return [self._trained(i) for i in range(len(self.members))]

    def evaluate(self, questions: DgbQuestions) -> F64:
        """Scores of every candidate by every member, (members, candidates), from the members' best weights."""
        self.stack = Stack(self.models, self.device)
        self.population.stack = self.stack
        return self._scores(questions.queries)

    def _padded_configs(self) -> list[Config]:
        configs = [member.config for member in self.members]
        return configs + [configs[-1]] * (-len(configs) % GROUP)

    # Training

    def _train_epoch(self, epoch: int, total_steps: int) -> None:
        self.population.reset_state()
        starts = range(0, len(self.members), GROUP)
        groups = [[m.config for m in self.members[start : start + GROUP]] for start in starts]
        planners = [ahead(self._plans(configs, epoch)) for configs in groups]
        for chunks in zip(*planners, strict=True):
            self._train_chunk(list(chunks), total_steps)

    def _plans(self, configs: list[Config], epoch: int) -> Iterator[GroupChunk]:
        """The chunks of an epoch for one group; copies that fill it up read what its last member reads."""
        planner, stream = Planner(self.stream, self.spec), self.stream
        slots = np.minimum(np.arange(GROUP), len(configs) - 1)
        count = self.config.train.negatives
        for start, stop, first, last in chunk_bounds(self._cuts, self.config.train.chunk):
            drawn = [draw_rows(stream, self._cuts, self._pool, c.train, epoch, start, first, last) for c in configs]
            negatives = np.empty((last - first, len(configs), count), np.int64)
            for own, (rows, nodes) in enumerate(drawn):
                negatives[rows - first, own] = nodes
            wide = negatives.reshape(last - first, len(configs) * count)
            plan = planner.plan(stop, training_queries(stream, self._cuts, np.arange(first, last), wide))
            query = np.stack([rows - first for rows, _ in drawn])[slots] if last > first else np.zeros((GROUP, 0), int)
            columns = np.concatenate([np.zeros((GROUP, 1), int), 1 + slots[:, None] * count + np.arange(count)], axis=1)
            pick = query[:, :, None] * (1 + wide.shape[1]) + columns[:, None, :]
            yield GroupChunk(plan, self._raw_features(plan.score), query, pick)

    def _raw_features(self, plan: ScorePlan) -> Tensor:
        config = self.config
        matrix = feature_matrix(
            plan.facts, config.features, gaps=config.model.gaps, mean_gap=self._shared.shape.mean_gap
        )
        return torch.from_numpy(matrix.astype(np.float32 if self._shared.dtype == torch.float32 else np.float64))

    def _train_chunk(self, chunks: list[GroupChunk], total_steps: int) -> None:
        """Every minibatch of the chunk's queries, then its last states into the store."""
        update, nodes = chunks[0].plan.update, self.stream.num_nodes
        whole = whole_table(update, nodes, self._capacity(update.num_events))
        rows = [torch.from_numpy(words).to(self.device) for words in (plan_words(whole), whole.final_h, whole.final_F)]
        context = self._shared.context(update, self.stream)
        length, queries = self.config.train.chunk, chunks[0].query.shape[1]
        if not queries:
            self._step(context, *rows)
        features = [chunk.features.to(self.device) for chunk in chunks]
        for start in range(0, queries, length):
            part = slice(start, min(start + length, queries))
            reads = [
                tensor
                for chunk, raw in zip(chunks, features, strict=True)
                for tensor in (*self._reads(chunk, nodes, part), raw)
            ]
            factors = self._optimizer.next_factors(cosine(self._steps, total_steps))
            self._steps += 1
            self._step(context, *rows, factors, *reads)
        self.population.settle()

    def _capacity(self, events: int) -> int:
        """Active entries that so many events can have."""
        return events * (2 + 2 * self.config.model.num_neighbors)

    def _reads(self, chunk: GroupChunk, nodes: int, part: slice) -> list[Tensor]:
        """What a minibatch of every member of a group reads, on the device."""
        plan, query, pick = chunk.plan.score, chunk.query[:, part], chunk.pick[:, part]
        index = (plan.src_h[query], plan.src_F[query], plan.cand_h[pick], plan.cand_F[pick])
        own = chunk.plan.update.nodes
        rows = [to_device(in_whole_table(codes, own, nodes), self.device) for codes in index]
        bank = torch.from_numpy(plan.facts[:, COLUMN["bank_count"]][pick]).flatten(1)
        return [*rows, bank.to(self.device, self.stack.flat.dtype), to_device(pick, self.device).flatten(1)]

    def _standardized(self, group: int, raw: Tensor) -> Tensor:
        at, buffers = self.stack.groups[group], self.stack.buffers
        return raw.sub(buffers["feature_shift"][at, None]).div_(buffers["feature_scale"][at, None])

    def _one_step(self, context: Tensor, words: Tensor, last_h: Tensor, last_F: Tensor, *rest: Tensor) -> None:
        """The recurrence of a chunk; then losses of every group, their gradients, one step of every member."""
        events = len(context)
        with torch.set_grad_enabled(bool(rest)):
            versions = self.population.update_all(words, context, self._capacity(events))
        if rest:
            self.stack.grad.zero_()
            self._backward(versions, rest[1:])
            self._optimizer.step(rest[0])
        self.population.propose(versions, last_h, last_F)

    def _backward(self, versions: Versions, tensors: tuple[Tensor, ...]) -> None:
        """Gradients of all losses of one minibatch, kept in the stack; `tensors` as `_reads` and raw features."""
        temperature, events = self.config.train.loss.geo_temperature, versions.energy.shape[1]
        up_h, up_F = torch.empty_like(versions.h), torch.empty_like(versions.F)
        each = len(tensors) // len(self.stack.groups)
        for group, at in enumerate(self.stack.groups):
            src_h, src_F, cand_h, cand_F, bank, pick, raw = tensors[group * each : (group + 1) * each]
            h, F = (log.detach()[at].requires_grad_() for log in (versions.h, versions.F))
            reads = Reads(src_h, src_F, cand_h, cand_F, self._standardized(group, raw[pick]), bank)
            values = score_losses(self.stack.score(group, h, F, reads), temperature)
            loss = (values * self._weights[at, : len(SCORED)]).sum()
            up_h[at], up_F[at] = self.stack.head_gradients(loss, group, h, F)
            self._sound[at] &= values.isfinite().all(1)
        smooth, energy = ((self._weights[:, LOSSES.index(name), None] / events) for name in ("smooth", "energy"))
        means = energy.expand_as(versions.energy), smooth.expand_as(versions.smooth)
        self.stack.updater_gradients(versions, Versions(up_h, up_F, *means))

    # Warming up

    def _warm_plans(self) -> list[tuple[ScorePlan, np.random.Generator]]:
        """Each member's events for the warm-up; also fits the standardization of its features."""

        def make(model: TSNN) -> tuple[ScorePlan, np.random.Generator]:
            rng = np.random.default_rng([model.config.train.seed, len(self._cuts)])
            plan = training_plan(model, self.split, self._cuts, self._pool, rng)
            model.standardize(self._raw_features(plan).to(model.dtype))
            model.head.geometry_weight.fill_(0.0)
            return plan, rng

        with ThreadPoolExecutor() as pool:
            return list(pool.map(make, self.models))

    def _warm_up(self, plans: list[tuple[ScorePlan, np.random.Generator]]) -> None:
        """See `tsnn.training.warmup`."""
        epochs, queries = self.config.train.warmup, len(plans[0][0])
        groups = [plans[start : start + GROUP] for start in range(0, len(plans), GROUP)]
        data = [torch.stack([self._raw_features(plan).to(self.device) for plan, _ in group]) for group in groups]
        counts = [np.stack([plan.facts[:, COLUMN["bank_count"]] for plan, _ in group]) for group in groups]
        bank = [torch.from_numpy(count).to(data[0]) for count in counts]
        rates = torch.full_like(self.stack.flat, LR)
        for name in self.stack.names:
            if name.startswith("updater."):
                rates[:, self.stack.place(name)] = 0.0
        trains = [config.train for config in self._padded_configs()]
        optimizer = StackedAdamW(self.stack, rates, trains, clip=False)

        def one_step(factors: Tensor, *picks: Tensor) -> None:
            self.stack.grad.zero_()
            for group, pick in enumerate(picks):
                self._warm_gradients(group, data[group], bank[group], pick)
            optimizer.step(factors)

        step, width = Recorded(one_step), 1 + NEGATIVES
        for epoch in range(epochs):
            orders = np.stack([rng.permutation(queries) for _, rng in plans])
            for start in range(0, queries, BATCH):
                rows = orders[:, start : start + BATCH, None] * width + np.arange(width)
                picks = [to_device(rows[self._slots(group)], self.device) for group in range(len(self.stack.groups))]
                step(optimizer.next_factors(1.0 - epoch / epochs), *picks)
        self._keep_the_best()
        self.stack.buffers["head.geometry_weight"].fill_(1.0)

    def _warm_gradients(self, group: int, data: Tensor, bank: Tensor, pick: Tensor) -> None:
        """Of a group's heads, on data alone; `data` and `bank` hold its members, of which copies read the last."""
        flat = pick.flatten(1)
        own = torch.arange(len(flat), device=self.device).clamp_(max=len(data) - 1)[:, None]
        features, nothing = self._standardized(group, data[own, flat]), torch.zeros_like(pick, dtype=data.dtype)
        values = score_losses(self.stack.decode(group, (nothing,) * 4, features, bank[own, flat]), 1.0)[:, :2]
        self.stack.head_gradients((values * self._weights[self.stack.groups[group], :2]).sum(), group)

    def _slots(self, group: int) -> list[int]:
        """The member in each place of a group."""
        last = len(self.members) - 1
        return [min(group * GROUP + i, last) for i in range(GROUP)]

    # Validation

    def _close_epoch(self) -> None:
        for member, sound in zip(self.members, self._sound.tolist(), strict=False):
            member.failed = member.failed or not sound
        running = [member for member in self.members if not member.is_over]
        self._keep_the_best()
        for member in running:
            member.epochs += 1

    def _keep_the_best(self) -> None:
        """The validation figure of the present weights, which become a member's best if they are."""
        scores = self._scores(self._validation.queries)
        weight = self.stack.buffers["head.geometry_weight"].tolist()
        for i, member in enumerate(self.members):
            if member.is_over or not np.isfinite(scores[i]).all():
                continue
            metric = self._validation.average_precision("val", scores[i])
            member.history = (*member.history, metric)
            if metric > member.best_metric:
                member.best_metric = metric
                member.best_epoch = member.epochs if weight[i] else -1
                self.stack.write(i, self.models[i])

    @torch.no_grad()
    def _scores(self, queries: Queries) -> F64:
        """Replay the stream for every member; a candidate stands alone here, whatever query it belongs to."""
        self.population.reset_state()
        out = torch.empty(len(self.stack), len(queries.cand), dtype=torch.float64, device=self.device)
        for step, block in ahead(plan_blocks(self.stream, self.spec, queries)):
            versions = self.population.update(block.update, self._shared.context(block.update, self.stream))
            where = slice(int(queries.ptr[step.first]), int(queries.ptr[step.last]))
            for group, at in enumerate(self.stack.groups if where.stop > where.start else ()):
                reads = self._alone(group, block.score)
                out[at, where] = self.stack.score(group, versions.h[at], versions.F[at], reads).total[..., 0].double()
            self.population.commit(block.update, versions)
        return out[: len(self.members)].cpu().numpy()

    def _alone(self, group: int, plan: ScorePlan) -> Reads:
        each = np.repeat(np.arange(len(plan)), np.diff(plan.ptr))
        index = (plan.src_h[each], plan.src_F[each], plan.cand_h[:, None], plan.cand_F[:, None])
        src_h, src_F, cand_h, cand_F = (to_device(rows, self.device).expand(GROUP, *rows.shape) for rows in index)
        bank = torch.from_numpy(plan.facts[:, COLUMN["bank_count"]]).to(self.device, self.stack.flat.dtype)
        return Reads(
            src_h,
            src_F,
            cand_h,
            cand_F,
            self._standardized(group, self._raw_features(plan).to(self.device).expand(GROUP, -1, -1)),
            bank.expand(GROUP, -1),
        )

    def _trained(self, i: int) -> Trained:
        member = self.members[i]
        return Trained(self.models[i].eval(), member.best_metric, member.best_epoch, member.epochs)


def score_losses(scores: Scores, temperature: float) -> Tensor:
    """The losses of `SCORED` for every member, (G, 4); see `tsnn.model.losses`."""
    total, inner, residual = scores
    softplus = torch.nn.functional.softplus
    ranking = -torch.log_softmax(total, dim=2)[..., 0].mean(1)
    binary = 0.5 * (softplus(-total[..., 0]) + softplus(total[..., 1:]).mean(2)).mean(1)
    geo = -torch.log_softmax(inner / temperature, dim=2)[..., 0].mean(1)
    return torch.stack([ranking, binary, geo, residual.square().mean((1, 2))], dim=1)


def in_whole_table(rows: Rows, own: I64, nodes: int) -> I64:
    """From version rows of a plan over its `own` nodes to those of one in which every node has a row."""
    wide = rows.astype(np.int64)
    return np.where(wide < len(own), own[np.minimum(wide, len(own) - 1)], wide + (nodes - len(own)))


def whole_table(plan: UpdatePlan, nodes: int, capacity: int) -> UpdatePlan:
    """The same recurrence with a row for every node and room for `capacity` active entries.

    Groups read different candidates, so their plans have rows for different nodes; and a recording needs arrays of one
    size. Room that is not used is never read: the events say how far theirs goes.
    """
    pointers: dict[str, Any] = {name: in_whole_table(getattr(plan, name), plan.nodes, nodes) for name in _POINTERS}
    room = capacity - len(plan.act_h)
    padded = {name: np.pad(pointers.get(name, getattr(plan, name)), (0, room)) for name in _ACTIVE}
    final_h, final_F = (np.arange(nodes) for _ in range(2))
    final_h[plan.nodes] = in_whole_table(plan.final_h, plan.nodes, nodes)
    final_F[plan.nodes] = in_whole_table(plan.final_F, plan.nodes, nodes)
    columns: dict[str, Any] = {**pointers, **padded, "final_h": final_h, "final_F": final_F}
    return replace(plan, nodes=np.arange(nodes), **columns)


def _on_host(config: Config) -> Config:
    """The same run on the host, where weights are drawn and kept."""
    train = config.train.model_copy(update={"device": "cpu", "engine": "auto"})
    return config.model_copy(update={"train": train})
