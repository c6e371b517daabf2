"""A customer's server as a process of its own: ``python customer.py SECRET``. It takes what is signed with the secret,
by the ``standardwebhooks`` package, and tells what came: the id and the body of each, and how many it refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.request import urlopen

from standardwebhooks.webhooks import Webhook, WebhookVerificationError


@dataclass(slots=True, frozen=True)
class Customer:
    url: str

    def seen(self) -> dict[str, Any]:
        """Returns ``got``, a list of ids and bodies, and ``refused``, a number."""
        with urlopen(self.url, timeout=30) as response:
            found: dict[str, Any] = json.load(response)
        return found


@contextmanager
def customer(secret: str) -> Iterator[Customer]:
    """Runs one for as long as it is used."""
    command = [sys.executable, "-m", "tests.webhooks.customer", secret]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Customer(f"http://127.0.0.1:{int(process.stdout.readline())}/")
        finally:
            process.terminate()


def _handler(secret: str, got: list[Any], refused: list[int]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            try:
                Webhook(secret).verify(body, {name.lower(): value for name, value in self.headers.items()})
                got.append((self.headers["webhook-id"], body.decode()))
                self.send_response(204)
            except WebhookVerificationError:
                refused.append(1)
                self.send_response(401)
            self.end_headers()

        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"got": got, "refused": len(refused)}).encode())

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(sys.argv[1], [], []))
    print(server.server_port, flush=True)
    server.serve_forever()
