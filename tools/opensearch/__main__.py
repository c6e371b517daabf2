"""``./dev opensearch [start|stop|status]``: a real OpenSearch on this machine; start prints its address."""

from __future__ import annotations

import argparse
import sys

from tools.opensearch.jars import NoOpenSearch
from tools.opensearch.node import FIRST_PORT, LAST_PORT, Node


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev opensearch", description="A real OpenSearch on this machine.")
    parser.add_argument("action", nargs="?", default="start", choices=("start", "stop", "status"))
    parser.add_argument("--port", type=int, default=FIRST_PORT, help=f"{FIRST_PORT} to {LAST_PORT}; else the next free")
    given = parser.parse_args()
    if not FIRST_PORT <= given.port <= LAST_PORT:
        parser.error(f"--port is {FIRST_PORT} to {LAST_PORT}, not {given.port}")
    node = Node()
    if given.action == "stop":
        sys.stderr.write("stopped\n" if node.stop() else "it was not running\n")
        return 0
    try:
        url = node.url if given.action == "status" else node.start(given.port)
    except NoOpenSearch as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{url or 'it is not running'}\n")
    return 0 if url else 3


if __name__ == "__main__":
    sys.exit(main())
