"""The application that ``redrive work`` runs in the bench: handlers that do nothing but leave their mark."""

from __future__ import annotations

import os

from bench.ledger import hit
from redrive import App, Context

KINDS = 100
SATURATED = "BENCH_SATURATED"

app = App()


async def noop(ctx: Context, n: int, pad: str = "") -> None:
    hit(n)


app.task("NOOP")(noop)
for number in range(KINDS):
    app.task(f"NOOP_{number}")(noop)
if SATURATED in os.environ:  # a limited kind exists only where its cost is the question
    app.task("SATURATED", concurrency=1)(noop)
