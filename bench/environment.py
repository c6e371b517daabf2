"""What the figures depend on: the machine, the versions."""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any


def facts() -> dict[str, Any]:
    return {
        "at": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "machine": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "cores": os.cpu_count(),
        "cpu": _cpu_model(),
        "memory_gb": _memory_gb(),
        "load_before": round(os.getloadavg()[0], 2),
        "fsync_us": round(_fsync_us()),
        "python": platform.python_version(),
        "python_us_per_1000_steps": round(_python_us()),
        "sqlite": sqlite3.sqlite_version,
        "postgres": _version_of_postgres(),
        "redis": _said_by(shutil.which("valkey-server") or shutil.which("redis-server"), "--version"),
        "redrive": metadata.version("redrive"),
        "commit": _said_by("git", "rev-parse", "--short", "HEAD"),
    }


def version(package: str) -> str | None:
    """The installed version, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _version_of_postgres() -> str | None:
    from tests.cluster import NoPostgres, find_binaries

    try:
        return _said_by(str(find_binaries() / "postgres"), "--version")
    except NoPostgres:
        return None


def _said_by(program: str | None, *arguments: str) -> str | None:
    if program is None:
        return None
    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip().split(" sha=")[0]


def _cpu_model() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.lower().startswith(("model name", "hardware")):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"


def _memory_gb() -> float:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)


def _python_us() -> float:
    """Builds of the same Python differ by a factor of two (with and without profile-guided optimisation)."""
    steps: dict[int, str] = {}
    began = time.perf_counter()
    for number in range(500_000):
        steps[number % 1000] = str(number)
    return (time.perf_counter() - began) / 500 * 1e6


def _fsync_us(times: int = 50) -> float:
    """What one commit costs at least: a small write and an fsync where the databases will be."""
    with tempfile.NamedTemporaryFile() as file:
        started = time.perf_counter()
        for _ in range(times):
            file.write(b"x" * 512)
            file.flush()
            os.fsync(file.fileno())
        return (time.perf_counter() - started) / times * 1e6
