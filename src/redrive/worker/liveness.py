"""Tells the store that this worker lives, from a thread of its own, whatever its event loop is doing.

The thread has a little loop and a connection of its own. It keeps leases, too, while the worker's loop stands still,
and looks at who else has fallen silent, or is gone from this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from redrive.errors import RedriveError, StoreUnavailable, StoreUnusable
from redrive.kernel.ports.store import Beat, Gone, Heard, Judgement, Neighbour, Process, Silent, Store
from redrive.settings import Settings
from redrive.version import __version__
from redrive.worker.config import WorkerConfig
from redrive.worker.run import Run, RunState
from redrive.worker.state import WorkerState

logger = logging.getLogger("redrive.worker")

LOOK_EVERY_S = 0.05
_PROC = Path("/proc")


def this_process() -> Process:
    """Returns this process; without machine and birth where the system does not tell."""
    stat, machine = _stat(_PROC / "self/stat"), _machine()
    known = (None, None) if stat is None or machine is None else (machine, stat.birth)
    return Process(socket.gethostname(), os.getpid(), *known)


def is_gone(process: Process) -> bool:
    """Returns whether nothing is left of a process of this machine, nor of what it had started in a session or group of
    its own. False where the system does not tell."""
    try:
        os.kill(process.pid, 0)  # unlike /proc, it knows of everybody's processes
    except ProcessLookupError:
        return _any_left(process.pid) is False
    except OSError:
        return False
    stat = _stat(_PROC / f"{process.pid}/stat")
    if stat is None:
        return False
    # A pid is not used again while something is left of a session or group of that number.
    return stat.birth != process.birth or (stat.ended and _any_left(process.pid) is False)


LATE_BEATS = 2  # so many that are missing, and a process that is not here is taken for dead


class Neighbourhood:
    """Tells which of those that say they are of this machine are gone from it.

    A process that was seen here and is here no more is gone. Of one that was never seen here, nobody knows that it ever
    was: machines that were cloned while they ran have the same boot, and perhaps the same host name. So it must have
    missed some beats, too; and one that beats although it is not here is elsewhere, for good."""

    def __init__(self) -> None:
        self._here: set[Process] = set()
        self._missing: dict[Process, float] = {}  # since when it is known that they are not here
        self._elsewhere: set[Process] = set()

    def gone(self, neighbours: Mapping[str, Neighbour], asked: float) -> dict[str, Process]:
        """Returns those that are gone. ``asked``: by this machine's clock, when the store was asked for them."""
        known = {one.process for one in neighbours.values()}
        self._here &= known
        self._elsewhere &= known
        self._missing = {process: since for process, since in self._missing.items() if process in known}
        return {name: one.process for name, one in neighbours.items() if self._is_gone(one, asked)}

    def _is_gone(self, one: Neighbour, asked: float) -> bool:
        process = one.process
        if process in self._elsewhere:
            return False
        if not is_gone(process):
            stat = _stat(_PROC / f"{process.pid}/stat")
            if stat is not None and stat.birth == process.birth:
                self._here.add(process)
            return False
        if process in self._here:
            return True
        if asked - one.silence > self._missing.setdefault(process, time.monotonic()):
            self._elsewhere.add(process)
            return False
        return one.silence > LATE_BEATS * one.every


async def session_ends(session: int, patience: float) -> bool:
    """Waits until no process of a session is left: a worker that was started in one of its own, and what its handlers
    have started. False when some are left after that many seconds, or where the system does not tell."""
    ends = time.monotonic() + patience
    while (left := _any_left(session)) and time.monotonic() < ends:  # noqa: ASYNC110 (nobody tells of others' children)
        await asyncio.sleep(LOOK_EVERY_S)
    return left is False


def _machine() -> str | None:
    """Returns what is the same for processes that see each other under the same pids, and their times of birth too."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        pids = (_PROC / "self/ns/pid").readlink()
    except (OSError, ValueError):
        return None
    try:
        clock = str((_PROC / "self/ns/time").readlink())
    except OSError:  # a kernel that has none: one clock for all
        clock = ""
    return f"{boot} {pids} {clock}".strip()


def _any_left(number: int) -> bool | None:
    """Returns whether a process of this session or process group runs; None where the system does not tell."""
    if not (_PROC / "self" / "stat").exists():
        return None
    stats = (_stat(path) for path in _PROC.glob("[0-9]*/stat"))
    return any(stat is not None and number in (stat.group, stat.session) and not stat.ended for stat in stats)


class _Stat:
    """What /proc/PID/stat says. The name, in parentheses, may have anything in it; what follows the last one does
    not."""

    def __init__(self, text: str) -> None:
        fields = text.rpartition(")")[2].split()
        self.ended = fields[0] in "ZX"
        self.group, self.session, self.birth = int(fields[2]), int(fields[3]), int(fields[19])


def _stat(path: Path) -> _Stat | None:
    try:
        return _Stat(path.read_text(errors="replace"))
    except (OSError, ValueError, IndexError):  # it has just ended
        return None


LONGEST_BEAT_S, SHORTEST_BEAT_S = 4.0, 0.2
# How far judges that wait for the same moment are spread: the first of them does it.
SPREAD_S = 0.3
LAST_WORD_S = 2.0
# From the beat at the start to the thread's first one, which needs a connection: on a busy machine that takes a while,
# and a worker whose beats have a gap may not judge for a minute more.
FIRST_BEAT_S = 1.0


def beat_interval(settings: Settings) -> float:
    """Returns the seconds between two beats: at least three before a silent worker is dead, and often enough to keep a
    lease that its loop has not renewed in time."""
    slack = (settings.lease - settings.heartbeat) / 3
    return max(min(LONGEST_BEAT_S, settings.dead_after / 3, slack), SHORTEST_BEAT_S)


class Liveness:
    """Beats for one worker. On its loop it calls ``on_dead`` when leases of others have ended, ``on_declared`` when
    this worker had been declared dead, ``on_lost`` for a run whose lease somebody else has, ``on_drain`` when somebody
    wants it to end, ``on_contact`` when the store has answered again."""

    def __init__(
        self,
        config: WorkerConfig,
        store: Store,
        state: WorkerState,
        *,
        on_dead: Callable[[], None],
        on_declared: Callable[[], None],
        on_lost: Callable[[Run], None],
        on_drain: Callable[[], None],
        on_contact: Callable[[], None],
    ) -> None:
        settings = config.settings
        self.interval = beat_interval(settings)
        self._config = config
        self._store = store
        self._state = state
        self._runs = state.runs
        self._judgement = Judgement(max(settings.dead_after, 3 * self.interval), settings.lease)
        # The loop renews after a heartbeat; what it has not renewed by then is kept from here.
        self._late = settings.heartbeat + (settings.lease - settings.heartbeat) / 3
        self._on_dead = on_dead
        self._on_declared = on_declared
        self._on_lost = on_lost
        self._on_drain = on_drain
        self._on_contact = on_contact
        self._born = self._answered = time.monotonic()
        self._asked = 0.0
        self._judge_at: float | None = None
        self._no_judgement_before = 0.0
        self._failing = False
        self._neighbourhood = Neighbourhood()
        self._worker_loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = threading.Event()
        self._wake: asyncio.Event | None = None

    async def start(self) -> None:
        """Beats once on the worker's own loop, so that it is missed from its first claim on; then from the thread."""
        self._worker_loop = asyncio.get_running_loop()
        with contextlib.suppress(StoreUnavailable, StoreUnusable):  # the ticker meets the same, and says so
            asked = time.monotonic()
            heard = await self._store.beat(self._beat())
            self._heed(heard)
            await self._bury(self._store, heard.neighbours, asked)
        self._thread = threading.Thread(target=self._main, name="redrive-beat", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Beats no more; waits a moment for the thread to close its connection."""
        self._ended.set()
        loop, wake = self._loop, self._wake
        if loop is not None and wake is not None:
            with contextlib.suppress(RuntimeError):  # it has ended by itself
                loop.call_soon_threadsafe(wake.set)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, LAST_WORD_S)

    # -- in the thread ---------------------------------------------------------------------------------------------

    def _main(self) -> None:
        try:
            asyncio.run(self._run())
        except Exception:
            logger.exception(
                "this worker's beat has ended; others will take it for dead", extra=self._fields("beat_ended")
            )

    async def _run(self) -> None:
        self._loop, self._wake = asyncio.get_running_loop(), asyncio.Event()
        store = self._store.on_this_loop()
        delay = min(self.interval, FIRST_BEAT_S)
        while not self._ended.is_set():
            await self._rest(delay)
            if self._ended.is_set():
                return
            try:
                delay = await self._turn(store)
            except RedriveError as error:
                delay = self._failed(error)

    async def _rest(self, seconds: float) -> None:
        assert self._wake is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    async def _turn(self, store: Store) -> float:
        """Beats, keeps what the loop has not kept, judges whom it is time to judge. Returns the seconds until the next
        turn."""
        began = time.monotonic()
        self._ask(began)
        heard = await store.beat(self._beat())
        self._heed(heard)
        await self._keep(store)
        if self._failing:
            self._failing = False
            self._tell(self._on_contact)
        if self._judge_at is not None and time.monotonic() >= self._judge_at:
            await self._judge(store)
        await self._bury(store, heard.neighbours, began)
        wait = max(began + self.interval - time.monotonic(), 0.0)
        return wait if self._judge_at is None else min(wait, max(self._judge_at - time.monotonic(), 0.01))

    def _failed(self, error: RedriveError) -> float:
        if not self._failing and not isinstance(error, StoreUnavailable):
            logger.warning("the store refused a beat: %s", error, extra=self._fields("beat_refused"))
        self._failing = True
        return min(self.interval, 0.2 + 0.8 * random.random())  # noqa: S311 (spreads a fleet; no secret)

    def _heed(self, heard: Heard) -> None:
        if heard.declared:
            self._tell(self._on_declared)
        if heard.drain:
            self._tell(self._on_drain)
        if heard.silent_in is None:
            self._judge_at = None
        elif self._judge_at is None or heard.silent_in > 0:
            spread = SPREAD_S * random.random()  # noqa: S311 (spreads a fleet; no secret)
            at = time.monotonic() + max(heard.silent_in, 0.0) + spread
            self._judge_at = max(at, self._no_judgement_before)

    async def _judge(self, store: Store) -> None:
        self._judge_at = None
        dead = await store.end_leases(Silent(self._config.id, self._judgement))
        for name, one in dead.items():
            logger.warning(
                "worker %s has been silent for more than %g s%s: its %d tasks go back",
                name,
                self._judgement.dead_after,
                ", and most others with it" if one.cut_off else "",
                one.tasks,
                extra=self._fields("declared_dead", dead=name, tasks=one.tasks, cut_off=one.cut_off),
            )
        if dead:
            self._tell(self._on_dead)
        else:
            # Somebody is silent, and it is not for us to say so: most of the fleet is, or we were away. Asking again at
            # once would keep a fleet busy that is just coming back.
            self._no_judgement_before = time.monotonic() + self.interval

    async def _bury(self, store: Store, neighbours: Mapping[str, Neighbour], asked: float) -> None:
        """Ends the leases of workers whose processes are gone from this machine: nobody has to wait for their
        silence. ``asked``: when the store was asked for them."""
        for name, process in self._neighbourhood.gone(neighbours, asked).items():
            ended = await store.end_leases(Gone(name, process))
            if name not in ended:  # somebody else has seen it, too
                continue
            tasks = ended[name].tasks
            logger.warning(
                "the process of worker %s (%d) has ended without a word: its %d tasks go back",
                name,
                process.pid,
                tasks,
                extra=self._fields("buried", dead=name, tasks=tasks),
            )
            self._tell(self._on_dead)

    async def _keep(self, store: Store) -> None:
        """Renews leases that the loop should have renewed: it stands still, and what it runs goes on."""
        now = time.monotonic()
        late = [run for run in self._all_runs() if now - run.renewed_at >= self._late]
        late = [run for run in late if run.state is not RunState.ABANDONED]
        if not late:
            return
        lost = await store.renew([(run.task.id, run.task.token) for run in late], self._config.settings.lease, {})
        for run in late:
            if run.task.id in lost:
                self._tell(self._on_lost, run)
            else:
                run.renewed_at = now

    def _all_runs(self) -> list[Run]:
        while True:
            try:
                return list(self._runs.values())
            except RuntimeError:  # the loop has just added one
                continue

    def _ask(self, now: float) -> None:
        """Asks the worker's loop for an answer, if the last one has come."""
        if self._asked <= self._answered:
            self._asked = now
            self._tell(self._answer)

    def _answer(self) -> None:
        self._answered = time.monotonic()

    def _tell(self, what: Callable[..., None], *args: object) -> None:
        assert self._worker_loop is not None
        with contextlib.suppress(RuntimeError):  # it is closed: the worker has ended
            self._worker_loop.call_soon_threadsafe(what, *args)

    def _beat(self) -> Beat:
        config, now = self._config, time.monotonic()
        stalled = now - self._asked if self._asked > self._answered else 0.0
        return Beat(
            config.id,
            this_process(),
            config.options.queues,
            config.options.concurrency,
            len(self._runs),
            __version__,
            now - self._born,
            config.settings.interval,
            self.interval,
            self._judgement,
            stalled if stalled >= 1.0 else 0.0,
        )

    def _fields(self, event: str, **more: object) -> dict[str, object]:
        return {"event": f"worker.{event}", "worker_id": self._config.id, **more}
