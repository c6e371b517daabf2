"""A provider's server that answers what a test tells it to, over real HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import pytest


class Request(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: Any


class Answer(NamedTuple):
    body: Any = None
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


class Server:
    """Answers each request by ``answer``; keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.answer: Callable[[Request], Answer] = lambda _: Answer({})
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = Request(self.command, self.path, headers, json.loads(body) if body else None)
                server.asked.append(request)
                answer = server.answer(request)
                content = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
                self.send_response(answer.status)
                for name, value in (*answer.headers, ("Content-Length", str(len(content)))):
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            do_POST = do_DELETE = do_PUT = do_PATCH = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that gave up
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def always(self, body: Any, status: int = 200, **headers: str) -> None:
        named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
        self.answer = lambda _: Answer(body, status, named)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()
