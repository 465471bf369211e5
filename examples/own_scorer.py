"""A method of your own beside a baseline, and the same method run so that it peeks, which is refused."""

import math

import numpy as np

import tsnn
from tsnn.evaluation.method import MethodScorer, told


class FadingCounts:
    """How often the pair has met, each time fading."""

    def __init__(self, scale=300.0):
        self.scale, self.heat = scale, {}

    def observe(self, row):
        """An event has happened."""
        (faded,) = self.score(row.src, np.array([row.dst]), row.t)
        self.heat[row.src, row.dst] = faded + 1, row.t

    def score(self, src, candidates, t):
        """Whom does `src` turn to at time `t`? A number for each candidate."""
        known = [self.heat.get((src, dst), (0.0, t)) for dst in candidates.tolist()]
        return [heat * math.exp((since - t) / self.scale) for heat, since in known]


class Peeking(MethodScorer):
    """As one may write it at first: all rows of a block are observed, then the questions that fall into it answered."""

    name = "peeking"

    def update(self, plan):
        """Observe, then answer."""
        for row in told(plan.stream, plan.update.start, plan.update.stop):
            self.running.observe(row)
        asked = zip(plan.score.src, np.split(plan.score.cand, plan.score.ptr[1:-1]), plan.queries.t, strict=True)
        return np.concatenate([self.running.score(*question) for question in asked])


def main(rows=4000):
    """People write to three friends, and after a while to three others; several letters bear one date."""
    rng, row = np.random.default_rng(0), np.arange(rows)
    src = rng.integers(0, 100, rows)
    friend = (7 * src + rng.integers(1, 4, rows) + 10 * (row // 900)) % 100
    split = tsnn.default_split(tsnn.from_arrays(src, friend, row // 4 * 4))
    print(tsnn.check_scorer(FadingCounts()))
    for scorer in (tsnn.baseline("edgebank"), FadingCounts(), Peeking(FadingCounts())):
        try:
            result = tsnn.evaluate(scorer, split, tsnn.Visibility.parse("strict"))
            print(f"{result.scorer}: test AP {result.metrics['test']['ap']:.1f}")
        except tsnn.ContractError as refused:
            print(refused)


if __name__ == "__main__":
    main()
