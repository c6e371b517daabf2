"""``redrive``: answers a stop from the first moment on, then imports the rest, which takes a while."""

from __future__ import annotations

import os
import signal
import sys

SERVING = ("work", "up")


def main() -> None:
    """Runs the command line. What serves and is told to stop before it has begun has stopped in order: nothing is
    claimed or open yet."""
    if sys.argv[1:2] and sys.argv[1] in SERVING:
        for number in (signal.SIGTERM, signal.SIGINT):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda *_: os._exit(0))
    from redrive.cli.main import main as run

    run()
