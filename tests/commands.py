"""``redrive``, modules and scripts as processes with a folder, an environment and streams of their own, and without the
second that a fresh interpreter spends on imports: they are forked from a process that has done them."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.preload"])


class Forked:
    """A process that was forked with everything imported; looks like a ``Popen``."""

    def __init__(self, target: Callable[..., None], *arguments: Any) -> None:
        self._process = FORKS.Process(target=target, args=arguments)
        self._process.start()
        self.pid: int = self._process.pid or 0

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float = 120) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(str(self._process), timeout)
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()

    def terminate(self) -> None:
        self._process.terminate()

    def send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


class Running(Forked):
    """A command that runs; what it writes is read as it comes."""

    def __init__(self, *words: object, env: Mapping[str, str]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="redrive-running-")
        streams = [Path(self._folder.name) / name for name in ("stdout", "stderr")]
        for stream in streams:
            os.mkfifo(stream)
        super().__init__(_running, ["redrive", *map(str, words)], os.getcwd(), dict(env), self._folder.name)
        self.stdout, self.stderr = (stream.open(encoding="utf-8") for stream in streams)  # once it has opened them

    def communicate(self, timeout: float = 120) -> tuple[str, str]:
        """Returns what it writes until it has ended."""
        with ThreadPoolExecutor(2) as threads:
            out, err = (threads.submit(stream.read) for stream in (self.stdout, self.stderr))
            self.wait(timeout)
            return out.result(), err.result()

    def close(self) -> None:
        self.kill()
        self.wait()
        self.stdout.close()
        self.stderr.close()
        self._folder.cleanup()


def redrive(
    *words: object,
    cwd: Path | str = ".",
    env: Mapping[str, str] | None = None,
    given: str = "",
    code: int | None = None,
    timeout: float = 120,
) -> subprocess.CompletedProcess[str]:
    """Runs one command to its end. ``env``: instead of this process's own; ``given``: what it reads from stdin;
    ``code``: the exit code that it has to end with."""
    return _to_its_end(_command, ["redrive", *map(str, words)], cwd, env, given, code, timeout)


def script(path: Path, *, code: int | None = None, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Runs a file of Python to its end, in its folder."""
    return _to_its_end(_script, [str(path)], path.parent, None, "", code, timeout)


def start_module(name: str, *arguments: str, env: Mapping[str, str], log: Path | None = None) -> Forked:
    """Starts what ``python -m name`` would. ``log``: where it writes its errors to; else to those of this process."""
    return Forked(_module, [name, *arguments], os.getcwd(), dict(env), None if log is None else str(log))


def _to_its_end(
    target: Callable[..., None],
    command: list[str],
    cwd: Path | str,
    env: Mapping[str, str] | None,
    given: str,
    code: int | None,
    timeout: float,
) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory(prefix="redrive-command-") as name:
        folder = Path(name)
        (folder / "stdin").write_text(given, encoding="utf-8")
        process = Forked(target, command, os.path.abspath(cwd), dict(os.environ if env is None else env), name)
        try:
            ended = process.wait(timeout)
        finally:
            process.kill()
        out, err = ((folder / stream).read_bytes().decode() for stream in ("stdout", "stderr"))
    assert code is None or ended == code, f"{command} ended with {ended}: {out}\n{err}"
    return subprocess.CompletedProcess(command, ended, out, err)


# -- in the process that was forked --------------------------------------------------------------------------------


def _command(command: list[str], cwd: str, environment: dict[str, str], streams: str) -> None:
    _become(command, cwd, environment)
    _redirect(streams)
    from redrive.cli.entry import main

    main()


def _running(command: list[str], cwd: str, environment: dict[str, str], streams: str) -> None:
    _become(command, cwd, environment)
    for number, stream in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(f"{streams}/{stream}", os.O_WRONLY), number)
        setattr(sys, stream, os.fdopen(number, "w", buffering=1, closefd=False))
    from redrive.cli.entry import main

    main()


def _script(command: list[str], cwd: str, environment: dict[str, str], streams: str) -> None:
    _become(command, cwd, environment)
    _redirect(streams)
    runpy.run_path(command[0], run_name="__main__")


def _module(command: list[str], cwd: str, environment: dict[str, str], log: str | None) -> None:
    _become(command, cwd, environment)
    if log is not None:
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    runpy.run_module(command[0], run_name="__main__", alter_sys=True)


def _become(command: list[str], cwd: str, environment: dict[str, str]) -> None:
    """Makes this process what a fresh one would be."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = [cwd, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    sys.argv = command


def _redirect(streams: str) -> None:
    os.dup2(os.open(f"{streams}/stdin", os.O_RDONLY), 0)
    sys.stdin = os.fdopen(0, closefd=False)
    for number, stream in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(f"{streams}/{stream}", os.O_WRONLY | os.O_CREAT, 0o600), number)
        setattr(sys, stream, os.fdopen(number, "w", closefd=False))
