"""Runs commands of redrive as an operator would, as a process of its own."""

from __future__ import annotations

import asyncio
import subprocess
import sys

from redrive_kit.labs.kit.world import World

COMMAND_TIMEOUT_S = 120.0


async def run_redrive(world: World, *arguments: str) -> tuple[int, str]:
    """Returns the exit code and what was said, errors included."""
    return await asyncio.to_thread(_run, world, arguments)


def _run(world: World, arguments: tuple[str, ...]) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "redrive.cli", *arguments],
        env=world.environment(),
        cwd=world.cwd,
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    return done.returncode, " ".join(f"{done.stdout} {done.stderr}".split())
