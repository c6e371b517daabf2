"""``redrive slo``: how queues stand against what they promise."""

from __future__ import annotations

from redrive.cli.support import output
from redrive.cli.support.connections import look_at
from redrive.cli.support.options import AppName, Json, Url
from redrive.kernel.alerts.slo import WINDOWS, service_document


def slo(url: Url = None, app: AppName = None, json: Json = False) -> None:
    """Service levels: which share of a queue's tasks started in time, how much of the error budget is left, and how
    fast it goes."""
    looked = look_at(url, app, lambda own: own.alerts.services())
    found = [(name, queue, one) for name, (queue, one) in looked.rows(lambda services: services.items())]
    if json:
        items = [
            looked.document(
                name, {"queue": queue, "share": one.share, "budget_left": one.left, **service_document(one)}
            )
            for name, queue, one in found
        ]
        output.emit_list(items, **looked.missing)
        return
    if not found:
        output.say("no queue has an objective; in redrive.toml: [slo.NAME] with wait_seconds, target and days")
        return
    heads = ["queue", *looked.column, "objective", "#in time", "#late", "#waiting", "#share", "#budget left"]
    output.table(
        [*heads, *(f"#{name}" for name in WINDOWS)],
        [
            (
                queue,
                *looked.cell(name),
                f"{one.objective.target:.4g} within {one.objective.wait_seconds:g} s, {one.objective.days} d",
                *(one.good, one.bad, one.waiting, f"{one.share:.2%}", f"{one.left:.0%}"),
                *(f"{one.burn.get(name, 0.0):g}×" for name in WINDOWS),
            )
            for name, queue, one in found
        ],
    )
