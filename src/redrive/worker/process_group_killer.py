"""Kills the process groups of handlers when their worker has died: a program of its own, which outlives the worker.

It is told over its standard input, a line for each group: ``+123`` for a new one, ``-123`` for one that is gone. It
imports nothing but these four, so that it starts at once and needs little memory.
"""

import os
import select
import signal
import sys


def main(worker: int) -> None:
    """Follows the worker of this process id until it dies."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the worker decides what those mean
    for group in _left_by(worker):
        try:  # noqa: SIM105 (see above)
            os.killpg(group, signal.SIGKILL)
        except OSError:
            pass


def _left_by(worker: int) -> set[int]:
    """Returns the groups that are there when the worker is gone."""
    groups, rest, dead = set[int](), b"", _opened(worker)
    while True:
        ready, _, _ = select.select([0, *dead], [], [])
        # What it has said is read before its death counts.
        data = os.read(0, 65_536) if 0 in ready else b""
        if not data:
            return groups
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            (groups.add if line[:1] == b"+" else groups.discard)(int(line[1:]))


def _opened(worker: int) -> list[int]:
    """Returns what becomes readable when the worker dies. Where there is no such thing, the end of the input does:
    processes that a handler has forked from the worker would hold that up."""
    try:
        return [os.pidfd_open(worker)]
    except (AttributeError, OSError):
        return []


if __name__ == "__main__":
    main(int(sys.argv[1]))
