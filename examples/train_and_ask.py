"""Train on a table of events, see how good it is beside simple rules, and ask who comes next and why.

python examples/train_and_ask.py [EVENTS.csv] [RUN]     columns src, dst, t; without a table, a synthetic stream
"""

from __future__ import annotations

import sys
from pathlib import Path

import tsnn
from tsnn.online.predictor import Predictor


def main(data: str, out: Path, **settings: object) -> None:
    """Train, compare, ask."""
    stream = tsnn.load(data)
    run = tsnn.train(stream, out, tsnn.Config.build(overrides=settings))

    print(f"{stream.num_events:,} events of {stream.num_nodes:,} nodes, visibility {run.metrics['card']['visibility']}")
    for result in [run.metrics, *run.metrics["baselines"]]:
        test = result["metrics"]["test"]
        print(f"  {result['scorer']:<20} test AP {test['ap']:6.2f}   MRR {test['mrr']:.3f}")

    predictor = Predictor.load(out)
    src = stream.ids.external[stream.src[-1]]
    now = predictor.clock + 1
    print(f"\nwho does {src!r} meet next?")
    best = predictor.recommend(src, now, k=5)
    for rank, found in enumerate(best, 1):
        print(f"  {rank}. {found.dst!r:<10} score {found.score:7.3f}")
    print("\nwhy the first one:")
    print(predictor.explain(src, best[0].dst, now).text())


if __name__ == "__main__":
    table = sys.argv[1] if len(sys.argv) > 1 else "synthetic:roles:events=3000"
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else Path("runs/train_and_ask")
    main(table, folder)
