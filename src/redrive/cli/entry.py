"""``redrive``: answers a stop from the first moment on, then imports the rest, which takes a while."""

from __future__ import annotations

import os
import signal
import sys

from redrive.cli.table import SERVING


def main() -> None:
    """Runs the command line. What serves and is told to stop before it has begun has stopped in order: nothing is
    claimed or open yet."""
    if any(sys.argv[1 : len(words) + 1] == words for words in SERVING):
        for number in (signal.SIGTERM, signal.SIGINT):  # also where a shell that put it in the background ignores one
            signal.signal(number, lambda *_: os._exit(0))
    from redrive.cli.main import main as run

    run()
