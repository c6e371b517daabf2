"""``redrive lab``: experiments with real processes and real kills, on a store of their own or a given one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from redrive.cli.support.instance import InProduction, refuse_production
from redrive.cli.support.options import Yes, actor
from redrive.errors import InvalidInput
from redrive.feature.cli import By, Json, output
from redrive_kit.labs.experiments import LABS
from redrive_kit.labs.lab_run import Experiment, LabRun

ALL = "all"
Which = Annotated[
    list[str] | None,
    typer.Argument(
        metavar=f"1…{len(LABS)}|all", help="Which ones; by itself: what each of them shows.", show_default=False
    ),
]
Store = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="A store that is there: SQLite or PostgreSQL. Labs use projections of their own "
        f"(lab1 to lab{len(LABS)}) in it, bring its schema up to date, and leave nothing that waits or is failed. "
        "Without it: a fresh SQLite file each.",
    ),
]
Sink = Annotated[
    str | None,
    typer.Option(
        "--sink",
        metavar="URL",
        help="A real OpenSearch or Elasticsearch (http://127.0.0.1:9200), behind a forwarder that is stopped in its "
        "place. Without it a search server of redrive's own is started.",
    ),
]
Quick = Annotated[bool, typer.Option("--quick", help="Short leases, outages and backoffs.")]
Report = Annotated[Path, typer.Option("--report", metavar="DIR", help="Where the records go.")]
Jobs = Annotated[
    int, typer.Option("--jobs", "-j", metavar="N", min=1, max=len(LABS), help="So many side by side; not with --url.")
]


def lab(
    which: Which = None,
    quick: Quick = False,
    at: Store = None,  # not by the name url: a lab is about no connection of redrive.toml
    sink: Sink = None,
    report: Report = Path("lab-reports"),
    jobs: Jobs = 1,
    by: By = None,
    in_production: InProduction = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Experiments that anyone can repeat: workers are killed, sinks are stopped, what must be seen is asserted.
    Each writes a record in Markdown. Exit code 1 when something was not seen."""
    if not which:
        _list(json)
        return
    chosen = _chosen(which)
    if at is not None:
        refuse_production("redrive lab", None, in_production, yes)
        if jobs > 1:
            raise InvalidInput("labs on one store run one after the other", hint="leave out --jobs, or --url")
    from redrive_kit.labs.lab_run import LabOptions
    from redrive_kit.labs.processes import run_until_stopped
    from redrive_kit.labs.run_labs import prepare, run_all

    prepare(report)
    say = (lambda _: None) if json else output.say
    done = run_until_stopped(run_all(chosen, LabOptions(at, sink, quick, actor(by), report, say), jobs))
    if json:
        output.emit({"ok": all(one.ok for one in done), "labs": [_document(one) for one in done]})
    elif len(done) > 1:
        output.say("")
        rows = [(str(one.number), one.title, "OK" if one.ok else "FAIL", f"{one.seconds:.0f} s") for one in done]
        output.table(["lab", "what", "verdict", "took"], rows)
    if not all(one.ok for one in done):
        raise typer.Exit(1)


def _chosen(which: list[str]) -> list[Experiment]:
    if which == [ALL]:
        return list(LABS.values())
    for word in which:
        if not word.isdecimal() or int(word) not in LABS:
            raise InvalidInput(f"there is no lab {word!r}", hint=f"redrive lab {' '.join(map(str, LABS))}, or all")
    return [LABS[number] for number in dict.fromkeys(map(int, which))]


def _list(json: bool) -> None:
    if json:
        output.emit_list([{"lab": one.number, "title": one.title, "about": one.about} for one in LABS.values()])
        return
    output.table(["lab", "what", "must be seen"], [(str(one.number), one.title, one.about) for one in LABS.values()])


def _document(one: LabRun) -> dict[str, Any]:
    return {
        "lab": one.number,
        "title": one.title,
        "ok": one.ok,
        "conclusion": one.conclusion,
        "seconds": round(one.seconds, 1),
        "parameters": dict(one.parameters),
        "expectations": [{"what": each.what, "ok": each.holds, "seen": each.seen} for each in one.expectations],
    }
