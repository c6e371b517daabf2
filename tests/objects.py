"""S3-compatible object storage in a folder: a real server, signatures and all."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import free_port

BUCKETS = 20
KEY, SECRET = "redrive-test", "not-a-secret-of-anyone"


@dataclass
class Objects:
    folder: Path
    port: int
    used: int = 0

    def bucket(self) -> str:
        """The address of one that nobody has used."""
        self.used += 1
        return f"s3://bucket{self.used - 1}"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }


@contextmanager
def serving(folder: Path) -> Iterator[Objects]:
    """Buckets are the folders in ``folder``. They are made beforehand: the server remembers what it saw."""
    for number in range(BUCKETS):
        (folder / f"bucket{number}").mkdir()
    program = shutil.which("rclone", path=str(Path(sys.executable).parent)) or "rclone"
    port = free_port()
    command = [
        program,
        "--config",
        "/dev/null",
        "serve",
        "s3",
        "--auth-key",
        f"{KEY},{SECRET}",
        "--addr",
        f"127.0.0.1:{port}",
        str(folder),
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _answering(server, port)
            yield Objects(folder, port)
        finally:
            server.kill()


def _answering(server: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError("the object storage of the tests did not start")
