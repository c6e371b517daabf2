"""``./dev storm``: break everything around the workers, one thing after the other, and check the books each time."""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import random
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests import cluster

from storm import report
from storm.calibrate import Calibration
from storm.pace import PACES, Pace
from storm.scenario import RECOVERY_TRIES, Scenario
from storm.scenarios import ALL, BY_NAME
from storm.stage import Stage
from storm.verdict import Result


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev storm", description=__doc__)
    pace = parser.add_mutually_exclusive_group()
    pace.add_argument("--quick", dest="pace", action="store_const", const="quick", help="within five minutes (default)")
    pace.add_argument("--full", dest="pace", action="store_const", const="full", help="long storms, and the soak")
    pace.add_argument("--fast", dest="pace", action="store_const", const="fast", help="as the tests do: no rates")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these storms, also those of the full set")
    parser.add_argument("--list", action="store_true", help="name the storms and end")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything to this file")
    parser.add_argument("--seed", type=int, help="repeat the random choices of an earlier run")
    parser.add_argument("--rate", type=float, help="tasks offered per second (else 300; in the full set, measured)")
    parser.add_argument("--keep", type=Path, metavar="DIRECTORY", help="keep logs and journals of failed storms here")
    given = parser.parse_args()
    given.pace = PACES[given.pace or "quick"]
    return given


def chosen(only: list[str] | None, pace: Pace) -> list[type[Scenario]]:
    if not only:
        return [scenario for scenario in ALL if pace.name == "full" or not scenario.full_only]
    unknown = sorted(set(only) - set(BY_NAME))
    if unknown:
        sys.exit(f"no storm is named {', '.join(unknown)}; ./dev storm --list names them")
    return [BY_NAME[name] for name in only]


def run_one(scenario: type[Scenario], stage: Stage) -> Result:
    """Whatever happens inside is this storm's result, and the next one begins afresh."""
    started = time.monotonic()
    try:
        made = scenario(stage)
        recovery = RECOVERY_TRIES * stage.pace.recovery
        with _time_limit(stage.pace.limit + made.patience + made.seconds + recovery):
            return made.run()
    except Exception as error:
        result = Result(scenario.name, scenario.about, scenario.store, seconds=time.monotonic() - started)
        result.judge("it could be run", False, f"{type(error).__name__}: {error}")
        result.figures["traceback"] = traceback.format_exc()
        return result


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    def ring(*_: Any) -> None:
        raise TimeoutError(f"the storm took longer than {seconds:g} s")

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@contextlib.contextmanager
def opened_stage(pace: Pace, seed: int) -> Iterator[Stage]:
    run = cluster.begin_run()
    assert run is not None
    directory = run[0] / "storms"
    directory.mkdir(mode=0o755)
    stage = Stage(pace, seed, directory)
    try:
        yield stage
    finally:
        stage.close()
        cluster.end_run(run)


def at_rate(stage: Stage, wanted: float | None) -> Pace:
    if wanted is None and stage.pace.name == "full":
        wanted = Calibration(stage).steady()
    return replace(stage.pace, rate=wanted or stage.pace.rate)


def run_all(scenarios: list[type[Scenario]], stage: Stage, keep: Path | None) -> list[Result]:
    results = []
    for scenario in scenarios:
        print(f"{scenario.name}: {scenario.about}", flush=True)
        result = run_one(scenario, stage)
        results.append(result)
        print("\n".join([*report.remarks(result), f"  {'ok' if result.holds else 'FAILED'}"]), flush=True)
        if not result.holds and keep is not None:
            shutil.copytree(stage.directory, keep / scenario.name, dirs_exist_ok=True)
        stage.clear()
    return results


def list_all() -> None:
    for scenario in ALL:
        print(f"{scenario.name:<22} {'full' if scenario.full_only else '    '}  {scenario.about}")


def main() -> int:
    given = arguments()
    if given.list:
        list_all()
        return 0
    scenarios = chosen(given.only, given.pace)
    seed = random.randrange(1_000_000) if given.seed is None else given.seed
    # A terminated storm cleans up as one that is interrupted does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    started = time.monotonic()
    with opened_stage(given.pace, seed) as stage:
        stage.pace = at_rate(stage, given.rate)
        print(f"{len(scenarios)} storms, {stage.pace.name}, {stage.pace.rate:.0f} tasks/s, --seed {seed}", flush=True)
        results = run_all(scenarios, stage, given.keep)
    seconds = round(time.monotonic() - started, 1)
    print(f"\n{report.table(results)}\n\n{seconds} s, seed {seed}")
    if given.json:
        about = {
            "pace": stage.pace.name,
            "rate": stage.pace.rate,
            "seed": seed,
            "seconds": seconds,
            "python": platform.python_version(),
            "platform": platform.platform(),
        }
        given.json.write_text(json.dumps(report.document(results, about), indent=2) + "\n")
    return 0 if all(result.holds for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
