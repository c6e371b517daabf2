"""``./dev bench``: redrive, what people would use instead, and the floor, measured in one run on this machine."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import environment, plots, report, targets
from bench.measure import Bench
from bench.peers import MODULES
from bench.plan import FULL, QUICK, SECTIONS, SMOKE, Plan
from bench.run import Run
from bench.servers import servers
from bench.workers import ROOT

BUSY = 0.7  # load that was there before
RESULTS = Path(__file__).parent / "results"


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", dest="plan", action="store_const", const=QUICK, help="within 3 minutes (the default)")
    size.add_argument(
        "--full", dest="plan", action="store_const", const=FULL, help="everything; the better part of an hour"
    )
    size.add_argument("--smoke", dest="plan", action="store_const", const=SMOKE, help="does the bench itself work?")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="A,B",
        help=(
            f"only these measurements ({', '.join(SECTIONS)}) or of these ({', '.join(MODULES)}); may be given twice"
        ),
    )
    parser.add_argument("--batch-tasks", type=int, metavar="N", help="how many tasks the batch of `batch` has")
    parser.add_argument("--remote-items", type=int, metavar="N", help="how many items the batches of `remote` have")
    parser.add_argument(
        "--outbox-events", type=int, metavar="N", help="how many events wait in the backlog of `outbox`"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to this file")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIRECTORY",
        help=(
            "for report, plots and results.json (default: bench/results for a whole --full, else bench/results/partial)"
        ),
    )
    parser.set_defaults(plan=QUICK)
    chosen = parser.parse_args(given)
    if chosen.batch_tasks is not None:
        chosen.plan = replace(chosen.plan, batch=(chosen.plan.batch[0], chosen.batch_tasks))
    if chosen.remote_items is not None:
        chosen.plan = replace(chosen.plan, remote=(FULL.remote[0], chosen.remote_items))
    if chosen.outbox_events is not None:
        rounds, events, _ = chosen.plan.outbox
        chosen.plan = replace(chosen.plan, outbox=(rounds, min(events, chosen.outbox_events), chosen.outbox_events))
    chosen.sections, chosen.peers = selection(parser, chosen.only)
    return chosen


def selection(parser: argparse.ArgumentParser, only: Sequence[str]) -> tuple[list[str], list[str]]:
    words = [word.strip() for text in only for word in text.split(",") if word.strip()]
    if unknown := [word for word in words if word not in SECTIONS and word not in MODULES]:
        parser.error(f"--only does not know {', '.join(unknown)}")
    sections = [word for word in words if word in SECTIONS] or list(SECTIONS)
    return sections, [word for word in words if word in MODULES] or list(MODULES)


async def measure(plan: Plan, sections: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    machine = environment.facts()
    with servers() as started:
        bench = Bench(started, plan)
        results = await Run(bench, sections, names).everything()
        bench.say("done")
        return _scrubbed({"mode": plan.name, "machine": machine, **results}, str(started.directory))


def _scrubbed(results: dict[str, Any], directory: str) -> dict[str, Any]:
    """Reasons quote error messages, which may name files of this machine."""
    text = json.dumps(results).replace(directory, "…").replace(str(ROOT), ".").replace(sys.prefix, "…")
    scrubbed: dict[str, Any] = json.loads(re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1", text))
    return scrubbed


def write(results: dict[str, Any], rows: Sequence[targets.Row], directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    drawn = plots.draw(results, directory)
    (directory / "README.md").write_text(report.markdown(results, rows, drawn), encoding="utf-8")
    write_json(results, rows, directory / "results.json")


def write_json(results: dict[str, Any], rows: Sequence[targets.Row], path: Path) -> None:
    whole = {**results, "targets": [vars(row) for row in rows]}
    path.write_text(json.dumps(_rounded(whole), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _rounded(value: Any) -> Any:
    """Four digits are more than the figures are worth."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: _rounded(found) for key, found in value.items()}
    return [_rounded(found) for found in value] if isinstance(value, list) else value


def main() -> None:
    chosen = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # servers and workers are ended on the way out
    try:
        results = asyncio.run(measure(chosen.plan, chosen.sections, chosen.peers))
    except KeyboardInterrupt:
        sys.exit(130)
    rows = targets.evaluate(results)
    whole = chosen.plan.name == FULL.name and not chosen.only
    directory = chosen.out or (RESULTS if whole else RESULTS / "partial")
    write(results, rows, directory)
    if chosen.json:
        write_json(results, rows, chosen.json)
    print(report.targets_table(rows))
    if (load := results["machine"]["load_before"]) > BUSY:
        print(f"\nThe machine was busy before this run (load {load}): do not trust these figures.")
    print(f"\nreport: {directory / 'README.md'}")


if __name__ == "__main__":
    main()
