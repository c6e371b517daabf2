"""What the applications talk to, on this machine only: HTTP, TLS, Redis' protocol, ports where nobody listens."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import socketserver
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import trustme

SLOW_S = 3.0  # by far longer than any caller waits, also on a busy machine
_OPENAI = {
    "quota": (429, "You exceeded your current quota", "insufficient_quota", "insufficient_quota"),
    "rate": (429, "Rate limit reached for gpt-x in organization org-{id} on tokens", "tokens", "rate_limit_exceeded"),
    "context": (
        400,
        "This model's maximum context length is 8192 tokens, yours has {n}",
        "invalid_request_error",
        "context_length_exceeded",
    ),
    "key": (401, "Incorrect API key provided: sk-{id}", "invalid_request_error", "invalid_api_key"),
    "overloaded": (503, "The engine is overloaded, request {id}", "server_error", None),
}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        if length:
            self.rfile.read(length)
        for pattern, answer in _ROUTES:
            if found := re.match(pattern, self.path):
                answer(self, *found.groups())
                return
        self.say(404, b"no such page")

    do_POST = do_PUT = do_HEAD = do_GET

    def say(self, status: int, body: bytes, kind: str = "text/plain", **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


def _status(to: _Handler, status: str) -> None:
    to.say(int(status), b"as you like it", **_wish(to))


def _wish(to: _Handler) -> dict[str, str]:
    found = re.search(r"retry-after(?:=|%3D)([^/&?]+)", to.path)
    return {"Retry_After": found[1].replace("+", " ")} if found else {}


def _slow(to: _Handler) -> None:
    time.sleep(SLOW_S)
    to.close_connection = True


def _drop(to: _Handler) -> None:
    to.close_connection = True


def _reset(to: _Handler) -> None:
    to.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    to.connection.shutdown(socket.SHUT_RD)
    to.close_connection = True


def _around(to: _Handler) -> None:
    to.say(302, b"", Location=to.path + "/again")


def _aws_xml(to: _Handler, status: str, code: str) -> None:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>said {to.path}</Message></Error>"
    to.say(int(status), body.encode(), "application/xml", **_wish(to))


def _aws_json(to: _Handler, status: str, code: str) -> None:
    body = json.dumps({"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": f"said {to.path}"})
    to.say(int(status), body.encode(), "application/x-amz-json-1.0")


def _openai(to: _Handler, what: str) -> None:
    status, message, kind, code = _OPENAI[what]
    tail = to.path.split("/")[3]
    text = message.replace("{id}", tail).replace("{n}", str(8193 + len(tail) * 17))
    body = {"error": {"message": text, "type": kind, "param": None, "code": code}}
    to.say(status, json.dumps(body).encode(), "application/json")


_ROUTES: list[tuple[str, Any]] = [
    (r"/status/(\d+)", _status),
    (r"/slow", _slow),
    (r"/drop", _drop),
    (r"/reset", _reset),
    (r"/around", _around),
    (r"/html", lambda to: to.say(200, b"<html><body>down for maintenance</body></html>", "text/html")),
    (r"/aws-xml/(\d+)/(\w+)", _aws_xml),
    (r"/aws-json/(\d+)/(\w+)", _aws_json),
    (r"/openai/(\w+)", _openai),
]


class _Redis(socketserver.StreamRequestHandler):
    """Answers every command by the name of its key; enough of the protocol for a client to come in."""

    def handle(self) -> None:
        while line := self.rfile.readline():
            parts = []
            for _ in range(int(line[1:])):
                parts.append(self.rfile.read(int(self.rfile.readline()[1:]) + 2)[:-2].decode())
            self.wfile.write(self.answer(parts))

    def answer(self, parts: list[str]) -> bytes:
        if parts[0].upper() in ("CLIENT", "HELLO", "SELECT", "AUTH"):
            return b"+OK\r\n"
        key = parts[1] if len(parts) > 1 else ""
        if key.startswith("hash"):
            return b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"
        if key.startswith("full"):
            return b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"
        if key.startswith("private"):
            return b"-NOAUTH Authentication required.\r\n"
        if key.startswith("moved"):
            return b"-LOADING Redis is loading the dataset in memory\r\n"
        if key.startswith("slow"):
            time.sleep(SLOW_S)
        return b"+OK\r\n"


class Servers:
    """All of them; the ports are the same for one run."""

    def __init__(self) -> None:
        self._running: list[socketserver.BaseServer] = []
        self.http = self._serve(ThreadingHTTPServer(("127.0.0.1", 0), _Handler))
        secure = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        trustme.CA().issue_cert("127.0.0.1", "localhost").configure_cert(context)
        secure.socket = context.wrap_socket(secure.socket, server_side=True)
        secure.handle_error = lambda *_: None  # type: ignore[method-assign]
        self.tls = self._serve(secure)
        redis = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Redis)
        redis.daemon_threads = True
        redis.handle_error = lambda *_: None  # type: ignore[method-assign]
        self.redis = self._serve(redis)
        self._closed: dict[str, socket.socket] = {}

    def _serve(self, server: socketserver.BaseServer) -> int:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        self._running.append(server)
        port: int = server.server_address[1]  # type: ignore[assignment]
        return port

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.http}{path}"

    def closed(self, name: str = "a") -> int:
        """A port of this name where nobody listens, and nobody else will."""
        if name not in self._closed:
            self._closed[name] = held = socket.socket()
            held.bind(("127.0.0.1", 0))  # bound and not listening: whoever comes is refused
        port: int = self._closed[name].getsockname()[1]
        return port

    def close(self) -> None:
        for server in self._running:
            server.shutdown()
            server.server_close()
        for held in self._closed.values():
            held.close()
