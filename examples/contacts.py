"""Contacts have no direction: ann meets bob as much as bob meets ann. Train on some, and ask from either end.

python examples/contacts.py [RUN]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tsnn
from tsnn.data.events import EventStream
from tsnn.online.predictor import Predictor

CLASS, CLASSES = 12, 5


def school(rows: int, seed: int = 0) -> EventStream:
    """Pupils who mostly meet a few friends of their own class; as badges record it, the smaller number first."""
    rng = np.random.default_rng(seed)
    pupil = rng.integers(0, CLASS * CLASSES, rows)
    friend = pupil // CLASS * CLASS + (pupil + rng.integers(1, 4, rows)) % CLASS
    met = np.where(rng.random(rows) < 0.1, rng.integers(0, CLASS * CLASSES, rows), friend)
    ends = np.sort(np.stack([pupil, met]), axis=0)[:, pupil != met]
    t = np.cumsum(rng.exponential(20.0, ends.shape[1]))
    return tsnn.from_arrays(*ends, t, name="school", undirected=True)


def main(out: Path, rows: int = 3000, **settings: object) -> tuple[float, float]:
    """Train on all but the last contacts; how often is the other one among the five best, asked from either end?"""
    stream = school(rows)
    past = stream.take(slice(0, stream.num_events - 200))
    run = tsnn.train(past, out, tsnn.Config.build(overrides=settings), compare=False)
    asked = run.metrics["card"]["question"]["direction"]
    print(f"{past.num_events:,} {asked} contacts, test AP {run.metrics['metrics']['test']['ap']:.1f}")

    predictor, pupils, hits = Predictor.load(out), stream.ids.external, np.zeros(2)
    for row in range(past.num_events, stream.num_events):
        one, other, t = pupils[stream.src[row]], pupils[stream.dst[row]], float(stream.t[row])
        for end, (src, dst) in enumerate(((one, other), (other, one))):
            hits[end] += dst in [found.dst for found in predictor.recommend(src, t, k=5)]
        predictor.observe(other, one, t)  # one event for both of them, whichever stands first
    shares = hits / 200
    print(f"among the five best of {len(pupils)}: {shares[0]:.0%} asked from one end, {shares[1]:.0%} from the other")
    return float(shares[0]), float(shares[1])


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("runs/contacts"))
