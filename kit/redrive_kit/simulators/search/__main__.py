"""``python -m redrive_kit.simulators.search``: a search server of our own, until it is stopped. The first line that it
prints is JSON with its address."""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import threading
from pathlib import Path

from redrive_kit.simulators.faults import serve
from redrive_kit.simulators.search.server import SearchBehaviour, SearchSimulator


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m redrive_kit.simulators.search", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0, the default, takes any free one")
    parser.add_argument("--keep", type=Path, help="the file that its documents are in after a restart")
    parser.add_argument("--like", default="{}", help='how it behaves, as JSON: {"latency": 0.1}')
    parser.add_argument("--while-heard", action="store_true", help="ends when its standard input does")
    given = parser.parse_args()
    if given.while_heard:
        threading.Thread(target=_end_with_input, daemon=True).start()
    simulator = SearchSimulator(SearchBehaviour(), keep=given.keep)
    simulator.change(json.loads(given.like))
    with socket.create_server(("127.0.0.1", given.port)) as listening:
        sys.stdout.write(json.dumps({"url": f"http://127.0.0.1:{listening.getsockname()[1]}"}) + "\n")
        sys.stdout.flush()
        serve(simulator.app(), listening)
    return 0


def _end_with_input() -> None:
    """Ends this process when whoever started it is gone."""
    while sys.stdin.buffer.read(1024):
        pass
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
