"""A method of your own beside the baselines, and the same method run so that it peeks, which is refused.

python examples/own_scorer.py [DATA]
"""

import math
import sys

import numpy as np

import tsnn
from tsnn.evaluation.method import MethodScorer, told


class FadingCounts:
    """How often the pair has met, each time fading; between two pairs that are equal, the livelier candidate."""

    def __init__(self):
        self.heat = {}  # of pairs and of destinations: how much, and since when

    def fit(self, split):
        """May be left out. The split has no test rows."""
        self.scale = float(split.stream.t[-1] - split.stream.t[0]) / 20

    def observe(self, row):
        """An event has happened."""
        for key in ((row.src, row.dst), row.dst):
            self.heat[key] = (self._faded(key, row.t) + 1, row.t)

    def score(self, src, candidates, t):
        """Whom does `src` turn to at time `t`? A number for each candidate."""
        return [self._faded((src, dst), t) + 0.01 * self._faded(dst, t) for dst in candidates.tolist()]

    def _faded(self, key, t):
        much, since = self.heat.get(key, (0.0, t))
        return much * math.exp((since - t) / self.scale)


class Peeking(MethodScorer):
    """As one would write it at first: all rows of a block are counted before the first question in it is answered."""

    name = "peeking"

    def update(self, plan):
        """Count the block's rows."""
        for row in told(plan.stream, plan.update.start, plan.update.stop):
            self.running.observe(row)

    def score(self, plan, versions):
        """Answer its questions."""
        asked = zip(plan.score.src, np.split(plan.score.cand, plan.score.ptr[1:-1]), plan.queries.t, strict=True)
        return np.concatenate([self.running.score(*question) for question in asked])


def main(data="synthetic:roles:events=4000"):
    """Check the method, set it beside the baselines, and see the other one refused."""
    print(tsnn.check_scorer(FadingCounts()))
    split, strict = tsnn.default_split(data), tsnn.Visibility.parse("strict")
    for scorer in (FadingCounts(), tsnn.baseline("edgebank"), tsnn.baseline("features"), Peeking(FadingCounts())):
        result = tsnn.evaluate(scorer, split, strict)
        print(f"{result.scorer:20} test AP {result.metrics['test']['ap']:.1f}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
