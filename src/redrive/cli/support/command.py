"""Runs the command line as a process of its own, for commands that check whether an operator would see the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from redrive.errors import RedriveError

COMMAND_TIMEOUT_S = 60.0


class CommandFailed(RedriveError):
    """Raised when such a command failed."""

    code = "COMMAND_FAILED"

    def __init__(self, command: str, code: int, said: str) -> None:
        super().__init__(f"redrive {command} ended with exit code {code}: {said}")
        self.ended_with = code


def run_command(*arguments: str, url: str | None = None, app: str | None = None) -> Any:
    """Returns what the command prints with ``--json``. Its URL goes by the environment: every user of the machine can
    read a command line, and the URL may have a password."""
    command = [sys.executable, "-m", "redrive.cli", *arguments, "--json", *(["--app", app] if app else [])]
    given = {**os.environ, **({"REDRIVE_URL": url} if url else {}), "REDRIVE_LOG": "off"}
    try:
        done = subprocess.run(
            command, env=given, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise CommandFailed(arguments[0], -1, f"no answer within {COMMAND_TIMEOUT_S:g} s") from None
    if done.returncode:
        raise CommandFailed(arguments[0], done.returncode, _message(done.stderr))
    return json.loads(done.stdout)


def _message(text: str) -> str:
    try:
        return str(json.loads(text.strip().splitlines()[-1])["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return text.strip()[-300:] or "it said nothing"
