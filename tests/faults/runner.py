"""One worker process for fault tests: ``python -m tests.faults.runner '{"options": {}, "constants": {}, "skew": 0}'``.

The same as ``redrive work``, plus what a command line has no business offering: shortened time-outs, and a wrong clock.
"""

from __future__ import annotations

import asyncio
import datetime
import importlib
import json
import os
import signal
import socket
import sys
import threading
import time
from typing import Any


def skew_clock(seconds: float) -> None:
    """This process believes that it is another time. (The monotonic clock stays: no wrong clock changes that one.)"""
    real_time, real_ns, real = time.time, time.time_ns, datetime.datetime
    time.time = lambda: real_time() + seconds
    time.time_ns = lambda: real_ns() + int(seconds * 1e9)

    class Kind(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, real)

    class Shifted(real, metaclass=Kind):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return real.now(tz) + datetime.timedelta(seconds=seconds)

    datetime.datetime = Shifted  # type: ignore[misc]


async def work(options: dict[str, Any]) -> None:
    from redrive.settings import Options
    from tests.faults.fault_app import app

    worker = app.worker(None, Options(**options))
    seen = 0

    def on_signal() -> None:
        nonlocal seen
        seen += 1
        if seen > 1:
            os._exit(130)
        worker.stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    await worker.run()
    await worker.store.close()
    print(json.dumps({"event": "worker.health", **worker.health.as_dict()}), file=sys.stderr, flush=True)
    os._exit(0)  # a handler that ignores being stopped must not keep the process alive


def run_forked(given: dict[str, Any], environment: dict[str, str], log: str) -> None:
    """In a process that was forked with everything imported: make it what a fresh one would be, and work."""
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    os.dup2(os.open(log, os.O_WRONLY), 2)
    sys.stderr = os.fdopen(2, "w", buffering=1)
    start(given)


def _follow(pid: int) -> None:
    """A test run that was killed leaves nobody to end its workers."""
    while True:
        time.sleep(1)
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            os._exit(1)


def main() -> None:
    start(json.loads(sys.argv[1]) if len(sys.argv) > 1 else {})


def start(given: dict[str, Any]) -> None:
    threading.Thread(target=_follow, args=(int(os.environ["FAULT_PARENT"]),), daemon=True).start()
    import pydantic.main  # noqa: F401 (built before the clock is replaced: pydantic looks at datetime's identity)

    if "FAULT_HOST" in os.environ:  # as if it were on a host of its own, where nobody here could see that it is gone
        socket.gethostname = lambda: os.environ["FAULT_HOST"]
    if given.get("skew"):
        skew_clock(given["skew"])
    for name, value in given.get("constants", {}).items():
        module, constant = name.rsplit(".", 1)
        found = importlib.import_module(module)
        if not hasattr(found, constant):
            sys.exit(f"{name} does not exist: the test shortens a constant that is gone")
        setattr(found, constant, value)
    from redrive.observe.logs import configure

    configure("json")
    asyncio.run(work(given.get("options", {})))


if __name__ == "__main__":
    main()
