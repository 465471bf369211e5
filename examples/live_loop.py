"""Score, then observe, event after event: the loop of a live system, with nodes it has never met, and a restart.

python examples/live_loop.py [RUN]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tsnn
from tsnn.online.predictor import Predictor

HISTORY, LIVE = 4000, 500


def main(out: Path, history: int = HISTORY, live: int = LIVE, **settings: object) -> float:
    """Train on the first rows of a stream, then meet the others one by one; returns the mean reciprocal rank."""
    stream = tsnn.load(f"synthetic:roles:events={history + live}")
    past = stream.take(np.arange(history))
    tsnn.train(past, out, tsnn.Config.build(overrides=settings), compare=False)
    predictor = Predictor.load(out)

    names, rng, reciprocal = stream.ids.external, np.random.default_rng(0), []
    for row in range(history, history + live):
        src, dst, t = names[stream.src[row]], names[stream.dst[row]], float(stream.t[row])
        others = [names[i] for i in rng.integers(0, len(names), 20) if names[i] != dst]
        scores = predictor.score(src, [dst, *others], t)  # first the question ...
        reciprocal.append(1 / (1 + sum(other >= scores[0] for other in scores[1:])))
        predictor.observe(src, dst, t, msg=None if stream.msg is None else stream.msg[row])  # ... then the event

    now = predictor.clock + 1
    blank = np.zeros(stream.msg_dim, np.float32) if stream.msg_dim else None
    predictor.observe("somebody new", names[0], now, msg=blank)  # an id nobody has heard of becomes a node
    asked = predictor.score("somebody new", [names[0], names[1]], now + 1)

    predictor.save(out)  # and after a restart everything goes on from here
    assert Predictor.load(out).score("somebody new", [names[0], names[1]], now + 1) == asked
    mean = float(np.mean(reciprocal))
    print(f"{live} events scored, then observed: mean reciprocal rank {mean:.3f} among 20 others, by chance 0.17")
    return mean


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("runs/live_loop"))
