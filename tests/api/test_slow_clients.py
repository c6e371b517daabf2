"""Clients that are slow, silent or very many, against a real server process."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import psutil
import pytest

# In one process of the run: they share a server.
pytestmark = pytest.mark.xdist_group("slow clients")
HALF = b"POST /api/tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
FILES, MANY = 300, 450  # half of the files are for connections


class Up:
    """``redrive up`` as a process of its own, with deadlines short enough to be waited for."""

    def __init__(self, folder: Path, files: int | None = None, headers: float = 1.0, **settings: str) -> None:
        self.log = folder / "log"
        code = (
            "from redrive.cli.support import http_server as c\n"
            f"c.DEADLINES_S.update(headers={headers}, body=1.0, reader=1.0); c.LINGER_S = 0.5\n"
            "import resource, sys; from redrive.cli.main import main\n"
            f"if {files}: resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files}))\n"
            "sys.argv = ['redrive', 'up', '--port', '0', '--json']; main()"
        )
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("REDRIVE_", "TASK_"))}
        environment = clean | {"REDRIVE_URL": f"sqlite:///{folder}/up.db", "REDRIVE_LOG": "json"} | settings
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=log, env=environment, cwd=folder
            )
        assert self.process.stdout is not None
        said = ""
        while not said.endswith("}\n"):
            line = self.process.stdout.readline().decode()
            assert line, self.log.read_text()
            said += line
        self.http = json.loads(said)["http"]
        self.port = int(self.http.rsplit(":", 1)[1])

    def get(self, path: str, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        try:
            with urlopen(Request(self.http + path, headers=headers or {}), timeout=60) as answer:
                return answer.status, json.load(answer)
        except HTTPError as error:
            return error.code, json.load(error)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    @property
    def rss(self) -> int:
        return int(psutil.Process(self.process.pid).memory_info().rss)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One for all that ask nothing special of it: to start it takes longer than most of them."""
    made = Up(tmp_path_factory.mktemp("up"), REDRIVE_TRUSTED_PROXIES="127.0.0.1, 10.0.0.0/8")
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def many_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4 * MANY)), hard))


def wait_closed(sockets: list[socket.socket], seconds: float = 60, left: int = 0) -> list[bytes]:
    """What each was told before it was closed; until only so many are ``left``."""
    said = {one.fileno(): b"" for one in sockets}
    open_ones = {one.fileno(): one for one in sockets}
    ends = time.monotonic() + seconds
    poll = select.poll()
    for number in open_ones:
        poll.register(number, select.POLLIN)
    while len(open_ones) > left and time.monotonic() < ends:
        for number, _ in poll.poll(500):
            try:
                data = open_ones[number].recv(65536)
            except OSError:
                data = b""
            said[number] += data
            if not data:
                poll.unregister(number)
                del open_ones[number]
    assert len(open_ones) <= left, f"{len(open_ones)} connections are still open"
    return [text for number, text in said.items() if number not in open_ones]


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One with few files, whose deadline for headers does not pass, however slow the machine is."""
    made = Up(tmp_path_factory.mktemp("patient"), files=FILES, headers=600)
    yield made
    made.stop()


def test_half_sent_requests_keep_nobody_out(patient: Up) -> None:
    """More of them than connections are allowed: health and API answer all the time, and little is written or kept.
    Room is made by those that have waited longest. A burst may meet the limit of files for a moment, before those that
    make room are closed: it goes on serving, and says so a few times at most."""
    up = patient
    before = up.rss
    with ExitStack() as opened:
        slow = []
        for number in range(MANY):
            slow.append(opened.enter_context(up.connect()))
            slow[-1].sendall(HALF)
            if number % 100 == 99:
                assert up.get("/healthz")[0] == 200
                assert up.get("/api/tasks")[0] == 200
        assert up.get("/readyz")[0] == 200
        assert len(psutil.Process(up.process.pid).net_connections("tcp")) < FILES
        kept = up.rss - before
        said = wait_closed(slow, left=FILES // 2)
        assert said == [b""] * len(said), "the longest waiting ones made room"
    assert kept < 64 * 2**20
    assert up.log.stat().st_size < 64 * 1024, up.log.read_text()[:2000]
    assert up.get("/healthz")[0] == 200


def test_a_request_in_drips_is_not_waited_for(up: Up) -> None:
    with up.connect() as slow:
        slow.sendall(HALF)
        slow.settimeout(0.2)
        answer = b""
        for _ in range(100):  # a byte now and then does not buy time
            try:
                slow.sendall(b"x")
                answer = slow.recv(1000)
                break
            except TimeoutError:
                continue
            except OSError:
                break
        assert answer == b"" or answer.startswith(b"HTTP/1.1 408")


def test_a_body_that_does_not_come_is_not_waited_for(up: Up) -> None:
    head = (
        b"POST /api/tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{"
    )
    with ExitStack() as opened:
        slow = [opened.enter_context(up.connect()) for _ in range(50)]
        for one in slow:
            one.sendall(head)
        said = wait_closed(slow)
    assert all(answer.startswith(b"HTTP/1.1 408") for answer in said)
    assert json.loads(said[0].partition(b"\r\n\r\n")[2])["code"] == "REQUEST_TIMEOUT"
    assert b"Exception" not in up.log.read_bytes()


def test_a_refused_body_is_not_waited_for_either(up: Up) -> None:
    """The answer is out, and the rest of the request never comes: that connection ends, too."""
    head = b"POST /api/none HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 500\r\n\r\n{"
    with up.connect() as slow:
        slow.sendall(head)
        [said] = wait_closed([slow])
    assert said.startswith(b"HTTP/1.1 404")


def test_a_reader_that_does_not_read_is_dropped(up: Up) -> None:
    """Nothing is kept for it for ever."""
    ask = b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    assert up.get("/openapi.json")[0] == 200  # made once, which takes its time
    with ExitStack() as opened:
        slow = [opened.enter_context(socket.socket()) for _ in range(10)]
        for one in slow:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.connect(("127.0.0.1", up.port))
            one.sendall(ask * 60)
        assert all(_was_answered(one) for one in slow), "one of them was not let in"
        assert up.get("/healthz")[0] == 200
        process, ends = psutil.Process(up.process.pid), time.monotonic() + 60
        while (left := _to_clients(process, up.port)) and time.monotonic() < ends:
            time.sleep(0.2)
        assert not left
        assert up.get("/healthz")[0] == 200


def _was_answered(one: socket.socket) -> bool:
    """Whether something has come, which stays unread; who is looked at late may have been dropped since."""
    one.settimeout(60)
    try:
        return one.recv(1, socket.MSG_PEEK) != b""
    except ConnectionResetError:
        return True


def _to_clients(process: psutil.Process, port: int) -> int:
    return sum(c.status == "ESTABLISHED" and c.laddr.port == port for c in process.net_connections("tcp"))


def test_rubbish_does_not_fill_the_log(up: Up) -> None:
    before = len(up.log.read_bytes().splitlines())
    for _ in range(500):
        with up.connect() as one:
            one.sendall(b"rubbish\r\n\r\n")
            one.recv(1000)
    assert len(up.log.read_bytes().splitlines()) < before + 30


def test_who_calls_is_not_taken_from_a_header(patient: Up) -> None:
    """Wrong tokens are counted by address; a header that says another one each time does not help."""
    codes = [
        patient.get("/api/tasks", {"Authorization": "Bearer wrong", "X-Forwarded-For": f"203.0.113.{n}"})[0]
        for n in range(11)
    ]
    assert codes[-1] == 429
    closed = patient.get("/api/tasks", {"X-Forwarded-For": "203.0.113.1"})
    assert closed[0] == 401, "the open door is for this machine only"


def test_a_trusted_proxy_says_who_calls(up: Up) -> None:
    wrong = {"Authorization": "Bearer wrong"}
    codes = [up.get("/api/tasks", wrong | {"X-Forwarded-For": f"203.0.113.{n}"})[0] for n in range(11)]
    assert set(codes) == {401}
    codes = [up.get("/api/tasks", wrong | {"X-Forwarded-For": f"8.8.8.{n}, 203.0.113.99"})[0] for n in range(11)]
    assert codes[-1] == 429, "what the caller itself has put in front of the proxy's word does not count"
