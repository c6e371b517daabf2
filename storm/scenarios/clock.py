"""Workers that believe in another time. Only the store's clock may decide anything."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from storm.scenario import Scenario
from storm.scenarios.restarted import judge_undisturbed
from storm.verdict import Result
from storm.world import World

TWO_HOURS = 7200


class WrongClock(Scenario):
    name = "clock-skew"
    about = "one worker two hours ahead, the other two hours behind"

    def inject(self, world: World, seconds: float) -> None:
        library = find_faketime()
        world.note("libfaketime" if library else "clock replaced inside Python: there is no libfaketime that works")
        for name, skew in (("w1", TWO_HOURS), ("w2", -TWO_HOURS)):
            world.fleet.stop(name)
            self._start(world, name, skew, library)
        world.wait_beating(world.fleet.started)
        time.sleep(seconds)

    def _start(self, world: World, name: str, skew: int, library: Path | None) -> None:
        if library is None:
            world.fleet.start(name, launcher=("storm.skewed", str(skew)))
            return
        world.fleet.start(name, env=_preloaded(library, skew))

    def judge(self, world: World, result: Result) -> None:
        """A worker that is ahead would see every lease as expired."""
        if self.pace.judges_times:
            judge_undisturbed(result)
        skewed = world.sql("select count(*) from redrive.history where finished_at > now() + '1 min'")
        result.judge("store's clock", skewed == [(0,)], f"{skewed} finished in the future")


def _preloaded(library: Path, skew: int) -> dict[str, str]:
    # The monotonic clock stays: no wrong clock changes that one.
    return {"LD_PRELOAD": str(library), "FAKETIME": f"{skew:+d}s", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


def find_faketime() -> Path | None:
    """One that works: under some versions ``time.sleep`` fails on the clock that is not faked."""
    library = _installed()
    if library is None:
        return None
    environment = {**os.environ, **_preloaded(library, TWO_HOURS)}
    tried = subprocess.run(
        [sys.executable, "-c", "import time; time.sleep(0.001)"], env=environment, capture_output=True, check=False
    )
    return library if tried.returncode == 0 else None


def _installed() -> Path | None:
    for pattern in ("*/faketime/libfaketime.so.1", "faketime/libfaketime.so.1", "*/libfaketime.so.1"):
        for root in (Path("/usr/lib"), Path("/usr/lib64"), Path("/usr/local/lib")):
            if found := sorted(root.glob(pattern)):
                return found[0]
    return None
