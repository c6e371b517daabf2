"""Stores, and somebody who listens."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.ops.conftest import harness

__all__ = ["harness"]


class Listener:
    """A server that keeps what it is told, and answers with ``status``."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []
        self.status = 200
        self.location: str | None = None
        listener = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                listener.told.append((self.path, json.loads(body) if body else None))
                self.send_response(listener.status)
                if listener.location is not None:
                    self.send_header("Location", listener.location)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_GET = do_POST

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def bodies(self, path: str) -> list[Any]:
        return [body for where, body in self.told if where == path]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class MailBox:
    """A mail server that keeps what it is sent."""

    def __init__(self) -> None:
        self.mails: list[str] = []
        self.said = ""
        self.refuses = False
        box = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self.wfile.write(b"220 box\r\n")
                while line := self.rfile.readline().decode():
                    box.said += line
                    verb = line[:4].upper().strip()
                    if verb == "DATA":
                        self.wfile.write(b"354 go on\r\n")
                        lines = iter(self.rfile.readline, b".\r\n")
                        box.mails.append(b"".join(lines).decode())
                    refused = verb == "RCPT" and box.refuses
                    answer = b"221 bye" if verb == "QUIT" else b"550 no ann here" if refused else b"250 ok"
                    self.wfile.write(answer + b"\r\n")
                    if verb == "QUIT":
                        return

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"smtp://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def mailbox() -> Iterator[MailBox]:
    made = MailBox()
    yield made
    made.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.close()
