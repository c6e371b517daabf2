"""A customer's server: real sockets, answers as it is told, remembers what it got."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(slots=True, frozen=True)
class Received:
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True, frozen=True)
class Reply:
    status: int = 200
    headers: Mapping[str, str] | None = None
    body: bytes = b"thanks"
    after: float = 0.0


class Receiver:
    """``answers`` are used up one after the other; the last one stays."""

    def __init__(self) -> None:
        self.got: list[Received] = []
        self.answers: list[Reply] = [Reply()]
        self.arrived = threading.Condition()
        self.port = 0
        self.scheme = "http"

    def url(self, path: str = "/hook", host: str = "127.0.0.1") -> str:
        return f"{self.scheme}://{host}:{self.port}{path}"

    def take(self, received: Received) -> Reply:
        with self.arrived:
            self.got.append(received)
            self.arrived.notify_all()
            return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def wait_for(self, number: int, timeout: float = 60.0) -> list[Received]:
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.got) >= number, timeout), f"only {len(self.got)} came"
            return list(self.got)


@contextmanager
def receiving(context: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    own = Receiver()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(own.take))
    server.daemon_threads = True
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        own.scheme = "https"
    own.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield own
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(take: Callable[[Received], Reply]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            reply = take(Received(self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            time.sleep(reply.after)
            try:
                self.send_response(reply.status)
                for name, value in (reply.headers or {}).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(reply.body)
            except OSError:  # whoever asked is gone
                pass

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
