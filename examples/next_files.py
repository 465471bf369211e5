"""A repository: which files somebody touches next, and who should review a file.

python examples/next_files.py [REPOSITORY] [FOLDER]     of this repository by default
"""

from __future__ import annotations

import sys
from pathlib import Path

import tsnn
from tsnn.online.predictor import Predictor


def busiest(stream: tsnn.EventStream) -> str:
    """The source of most of the last hundred events."""
    last = stream.src[-100:].tolist()
    return str(stream.ids.external[max(last, key=last.count)])


def main(repository: Path, out: Path, **settings: object) -> None:
    """Train on the history as git tells it, then ask in both directions."""
    asked = {
        "which files does {} touch next?": f"git:{repository}",
        "who should review {}?": f"git:{repository}?links=authors",
    }
    for number, (question, address) in enumerate(asked.items()):
        stream = tsnn.load(address)
        run = tsnn.train(stream, out / str(number), {"train.epochs": 3, **settings}, compare=False)
        print(f"{stream.num_events:,} changes, test MRR {run.metrics['metrics']['test']['mrr']:.3f}")
        predictor, source = Predictor.load(run), busiest(stream)
        print(question.format(source))
        for place, found in enumerate(predictor.recommend(source, k=5), 1):
            print(f"  {place}. {found.dst}")


if __name__ == "__main__":
    told = sys.argv[1:]
    main(Path(told[0] if told else "."), Path(told[1] if told[1:] else "runs/next_files"))
