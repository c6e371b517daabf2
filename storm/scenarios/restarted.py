"""A deployment: every worker is asked to stop and replaced, one after the other."""

from __future__ import annotations

from typing import Any

from storm.scenario import Scenario
from storm.verdict import Result
from storm.world import World


class RollingRestart(Scenario):
    name = "rolling-restart"
    about = "SIGTERM to one worker after the other, each replaced"

    def inject(self, world: World, seconds: float) -> None:
        codes = []
        for name in list(world.fleet.workers):
            codes.append(world.fleet.stop(name))
            world.fleet.start(name)
            world.wait_beating(world.fleet.started)
        world.figures["exit_codes"] = codes

    def judge(self, world: World, result: Result) -> None:
        """Nothing died, so nothing had to be recovered: what ran was finished or handed back."""
        codes: list[Any] = world.figures["exit_codes"]
        result.judge("exit codes", not any(codes), str(codes))
        if self.pace.judges_times:
            judge_undisturbed(result)


def judge_undisturbed(result: Result) -> None:
    """No lease expired. Not asked on a machine that is busy with other tests."""
    assert result.account is not None
    result.judge("nothing recovered", result.account.recovered == 0, f"{result.account.recovered} leases expired")
