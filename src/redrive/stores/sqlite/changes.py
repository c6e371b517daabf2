"""Notices what other processes write to the file: at a hint from the file system, else by looking now and then."""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import select
import sys
import threading
from collections.abc import Callable
from functools import cache

# Notices that another process writes to the log: inotify, through the C library. Linux only.

# From <sys/inotify.h>. A log that is deleted says so by IN_ATTRIB: its inode lives on while somebody has it open.
_IN_MODIFY, _IN_ATTRIB, _IN_DELETE_SELF, _IN_MOVE_SELF = 0x2, 0x4, 0x400, 0x800
_CHANGES = _IN_MODIFY | _IN_ATTRIB | _IN_DELETE_SELF | _IN_MOVE_SELF


class Watch:
    """Waits for one file to change, or to be interrupted. Raises OSError where the system does not allow it."""

    def __init__(self) -> None:
        if sys.platform != "linux" or not hasattr(os, "eventfd"):
            raise OSError(errno.ENOSYS, "there is no inotify here")
        self._inotify = _call("inotify_init1", os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            self._interrupt = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        except BaseException:
            os.close(self._inotify)
            raise
        self._poll = select.poll()
        self._poll.register(self._inotify, select.POLLIN)
        self._poll.register(self._interrupt, select.POLLIN)

    def follow(self, path: str) -> bool:
        """Watches the file that has this name now; False when there is none. Costs little when it is the same one."""
        try:
            _call("inotify_add_watch", self._inotify, ctypes.c_char_p(os.fsencode(path)), ctypes.c_uint32(_CHANGES))
        except FileNotFoundError:
            return False
        return True

    def wait(self, timeout: float) -> bool:
        """Waits; True when the file changed, False when the time is over or somebody interrupts."""
        ready = [fd for fd, _ in self._poll.poll(timeout * 1000)]
        if self._interrupt in ready:
            os.eventfd_read(self._interrupt)
        return self._inotify in ready and self.forget()

    def forget(self) -> bool:
        """Drops the changes up to now. The kernel merges equal events: a burst of writes is one."""
        try:
            return bool(os.read(self._inotify, 4096))
        except BlockingIOError:
            return False

    def interrupt(self) -> None:
        os.eventfd_write(self._interrupt, 1)

    def close(self) -> None:
        os.close(self._inotify)
        os.close(self._interrupt)


def _call(name: str, *args: object) -> int:
    result = _function(name)(*args)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result


@cache
def _function(name: str) -> Callable[..., int]:
    function: Callable[..., int] = getattr(ctypes.CDLL(None, use_errno=True), name)
    return function


# Decides when to look whether another process committed: at a hint from the file system, else now and then.

logger = logging.getLogger("redrive.sqlite")

# Without hints: how often to look while nothing else is to be done.
POLL_WITHOUT_HINTS_EVERY_S = 0.006
# With hints: how often all the same, since a file system may keep some to itself.
POLL_WITH_HINTS_EVERY_S = 0.5
# A hint comes when the log is written, which is before the commit is synced and visible: look again after this long,
# then after twice as long, and so on; less often once that has taken longer than a commit does.
LOOK_AGAIN_AFTER_S = 0.0005
# No hints for this long after own work or news. Our own writes cause hints too, and commits that come in quick
# succession are answered together: a busy store is not slowed down by watching.
IGNORE_HINTS_FOR_S = 0.003


class ChangePoller:
    """Where the writing thread waits while it has nothing to do."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._watch: Watch | None = None
        self.reset()

    def reset(self) -> None:
        """Starts anew: a forked process must not take the hints of its parent."""
        self._lock = threading.Lock()
        self._log = ""
        self._asleep = False
        self._blind = False
        self._pause = IGNORE_HINTS_FOR_S
        self.close()

    def close(self) -> None:
        """Stops watching: what is watched belongs to one connection; while that is open, nobody deletes the log."""
        with self._lock:
            watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    def wait(self, bell: threading.Lock) -> bool:
        """Waits until the bell rings (True), or until it is time to look (False)."""
        watch = self._follow() if self._pause > IGNORE_HINTS_FOR_S else None
        rung = self._drowse(bell) if watch is None else self._sleep(bell, watch)
        if rung:
            self._pause = IGNORE_HINTS_FOR_S
        return rung

    def found(self) -> None:
        """Notes that a look found something."""
        self._pause = IGNORE_HINTS_FOR_S

    def ring(self) -> None:
        """Wakes somebody who sleeps beside the watch and does not hear the bell."""
        if self._asleep:
            with self._lock:  # not while it is being closed: its number may already be another file's
                if self._watch is not None:
                    self._watch.interrupt()

    def _drowse(self, bell: threading.Lock) -> bool:
        rung = bell.acquire(timeout=min(self._pause, POLL_WITHOUT_HINTS_EVERY_S))
        if not rung and self._watch is not None:
            self._watch.forget()  # before the look that follows: what is written after it counts
        self._pause = min(self._pause * 2, POLL_WITHOUT_HINTS_EVERY_S)
        return rung

    def _sleep(self, bell: threading.Lock, watch: Watch) -> bool:
        self._asleep = True
        heard = False
        # From here on `ring` interrupts; whoever rang before is heard now.
        rung = bell.acquire(blocking=False)
        if not rung:
            heard = watch.wait(self._pause)
            rung = bell.acquire(blocking=False)
        self._asleep = False
        self._pause = LOOK_AGAIN_AFTER_S if heard else min(self._pause * 3, POLL_WITH_HINTS_EVERY_S)
        return rung

    def _follow(self) -> Watch | None:
        """Returns the watch, on the log that is there now; None where there is none to be had."""
        if self._blind:
            return None
        try:
            if self._watch is None:
                # SQLite keeps the log beside the file itself, not beside a link to it.
                self._log = os.path.realpath(self._path) + "-wal"
                self._watch = Watch()
            return self._watch if self._watch.follow(self._log) else None
        except OSError as error:
            self._blind = True
            self.close()
            logger.debug(
                "%s cannot be watched (%s); it is polled instead",
                self._path,
                error,
                extra={"event": "store.polled"},
            )
            return None
