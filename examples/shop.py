"""A shop: who buys what next, from a messy export with dates, categories and prices.

python examples/shop.py [RUN]     writes shop.csv beside the run
"""

from __future__ import annotations

import csv
import random
import sys
from datetime import datetime, timedelta
from pathlib import Path

import tsnn
from tsnn.online.predictor import Predictor

SHELVES = {"tea": (3, 9), "books": (8, 30), "garden": (5, 90), "bikes": (400, 2500)}


def write_export(path: Path, rows: int) -> None:
    """Semicolons, latest purchase first, prices as text, some empty, some rows twice, a column of no use."""
    rng, when, lines = random.Random(0), datetime(2026, 1, 5, 9), []
    for number in range(rows):
        when += timedelta(minutes=rng.randrange(5, 60))
        customer = rng.randrange(40)  # each mostly buys from one shelf, and there mostly the same articles
        shelf = list(SHELVES)[customer % 4 if rng.random() < 0.9 else rng.randrange(4)]
        article = f"{shelf}-{(customer + rng.choice((0, 0, 0, 1, 2, 5))) % 10}"
        price = f"{rng.uniform(*SHELVES[shelf]):,.2f} EUR".translate(str.maketrans(",.", ".,"))
        lines.append([f"{when:%Y-%m-%d %H:%M}", f"user{customer}", article, shelf, price if number % 90 else "", "web"])
    names = ["bought", "customer", "article", "shelf", "price", "channel"]
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter=";").writerows([names, *lines[::-1], *lines[:7]])


def main(out: Path, rows: int = 2000, **settings: object) -> None:
    """Read the export, train, and say what a customer buys next."""
    table = out.with_name("shop.csv")
    table.parent.mkdir(parents=True, exist_ok=True)
    write_export(table, rows)
    columns = {"src": "customer", "dst": "article", "t": "bought", "msg": "price", "node_type": (None, "shelf")}
    stream = tsnn.read_table(table, **columns, sort=True, drop_missing=True, dedupe=True)
    for view in stream.preview.columns:
        print(f"{view.column:<9} {view.part:<23} {view.understood}")
    print(*stream.preview.cleaned.sentences(), sep="\n")

    tsnn.train(stream, out, tsnn.Config.build(overrides={"train.epochs": 3, **settings}), compare=False)
    predictor = Predictor.load(out)
    now = predictor.clock + timedelta(hours=1)
    best = predictor.recommend("user7", now, k=5)
    print("\nwhat user7 bought last, and buys next:")
    for article, when, _ in predictor.recent("user7", 5)[::-1]:
        print(f"  {when:%d %B %H:%M}  {article}")
    for found in best:
        print(f"  from {now:%d %B %H:%M}  {found.dst}, score {found.score:.2f}")
    print(predictor.explain("user7", best[0].dst, now).text())


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("runs/shop"))
