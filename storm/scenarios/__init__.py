"""Every storm, in the order they are run."""

from __future__ import annotations

from storm.scenario import Scenario
from storm.scenarios.chaos import Chaos
from storm.scenarios.clock import WrongClock
from storm.scenarios.deaths import DEATHS
from storm.scenarios.disk import PostgresDiskFull, ServerDiskFull, SqliteDiskFull
from storm.scenarios.herd import Herd
from storm.scenarios.killed import EverythingKilled, KilledAgainAndAgain, OneKilled
from storm.scenarios.migrated import MigrationKilled, SqliteMigrationKilled
from storm.scenarios.network import Cut, HalfOpen, Healed, Slow, Stranded
from storm.scenarios.poison import Poison, PoisonedFleet, SqlitePoison, SqlitePoisonedFleet
from storm.scenarios.pressure import Burst, HorizonPinned, Overload, Readers
from storm.scenarios.quiet import Idle, IdleFleet
from storm.scenarios.restarted import RollingRestart
from storm.scenarios.server import BackendsTerminated, Gone, IdleConnections, Stopped
from storm.scenarios.silent import LoopBlocked, Paused
from storm.scenarios.soak import Soak
from storm.scenarios.sqlite import AnyKilled, PowerCut, WriteLockHeld

ALL: tuple[type[Scenario], ...] = (
    Stopped,
    BackendsTerminated,
    IdleConnections,
    OneKilled,
    KilledAgainAndAgain,
    EverythingKilled,
    *DEATHS,
    Poison,
    SqlitePoison,
    PoisonedFleet,
    SqlitePoisonedFleet,
    Paused,
    LoopBlocked,
    RollingRestart,
    Cut,
    HalfOpen,
    Healed,
    Stranded,
    Slow,
    PostgresDiskFull,
    ServerDiskFull,
    WrongClock,
    HorizonPinned,
    Overload,
    Readers,
    Burst,
    AnyKilled,
    PowerCut,
    SqliteDiskFull,
    WriteLockHeld,
    Idle,
    IdleFleet,
    Gone,
    Herd,
    Chaos,
    Soak,
    MigrationKilled,
    SqliteMigrationKilled,
)
BY_NAME = {scenario.name: scenario for scenario in ALL}
