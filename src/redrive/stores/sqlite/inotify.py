"""Notices that another process writes to the log: inotify, through the C library. Linux only."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import sys
from collections.abc import Callable
from functools import cache

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
