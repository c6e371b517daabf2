"""``redrive`` as a process with a folder, an environment and streams of its own, without the second that a fresh
interpreter spends on imports: it is forked from a process that has done them."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.preload"])


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
    command = ["redrive", *map(str, words)]
    with tempfile.TemporaryDirectory(prefix="redrive-command-") as name:
        folder = Path(name)
        (folder / "stdin").write_text(given, encoding="utf-8")
        arguments = (command, os.path.abspath(cwd), dict(os.environ if env is None else env), name)
        process = FORKS.Process(target=_run, args=arguments)
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(command, timeout)
        out, err = ((folder / stream).read_bytes().decode() for stream in ("stdout", "stderr"))
        done = subprocess.CompletedProcess(command, process.exitcode, out, err)
        process.close()
    assert code is None or done.returncode == code, f"{command} ended with {done.returncode}: {out}\n{err}"
    return done


def _run(command: list[str], cwd: str, environment: dict[str, str], streams: str) -> None:
    """In the process that was forked: makes it what a fresh one would be, and runs the command."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = [cwd, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    os.dup2(os.open(f"{streams}/stdin", os.O_RDONLY), 0)
    sys.stdin = os.fdopen(0, closefd=False)
    for number, stream in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(f"{streams}/{stream}", os.O_WRONLY | os.O_CREAT, 0o600), number)
        setattr(sys, stream, os.fdopen(number, "w", closefd=False))
    sys.argv = command
    from redrive.cli.entry import main

    main()
