"""Where storms take place: the private server, a database or a file for each storm, and file systems to fill."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
from tests import cluster

from redrive.features import installed
from redrive.stores import make_store
from storm.pace import Pace

SERVER = {
    "max_connections": "500",
    "max_wal_size": "1GB",
    "autovacuum_naptime": "5s",
    "log_line_prefix": "%d:%a:%p:",
    "wal_level": "minimal",
    "max_wal_senders": "0",
}
TEMPLATE = "storm_template"


class Stage:
    """Everything that one run of the storms shares. A server that a storm left down is started for the next."""

    def __init__(self, pace: Pace, seed: int, directory: Path) -> None:
        self.pace = pace
        self.seed = seed
        self.directory = directory
        self._server: cluster.Cluster | None = None

    @property
    def server(self) -> cluster.Cluster:
        if self._server is None:
            self._server = cluster.private_cluster(f"storm-{uuid4().hex[:6]}", settings=SERVER)
            with psycopg.connect(self._server.url(), autocommit=True) as admin:
                admin.execute(f"create database {TEMPLATE}")
            migrate(self._server.url(TEMPLATE))
        return self._server

    def folder(self, name: str) -> Path:
        made = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.directory))
        made.chmod(0o755)
        return made

    @contextlib.contextmanager
    def database(self, options: str = "", template: str = TEMPLATE) -> Iterator[str]:
        """The URL of a database, migrated unless from another template; dropped afterwards."""
        name = f"storm_{uuid4().hex[:10]}"
        if self.server.pid is None:
            self.server.start()
        self._admin(f"create database {name} template {template} {options}")
        try:
            yield self.server.url(name)
        finally:
            if self.server.pid is None:
                self.server.start()
            self._admin(f"drop database if exists {name} with (force)")

    def tablespace(self, stack: contextlib.ExitStack, directory: Path) -> str:
        """A place for databases in this directory, as long as the stack is open."""
        name = f"storm_{uuid4().hex[:10]}"
        self._admin(f"create tablespace {name} location '{directory}'")
        stack.callback(self._admin, f"drop tablespace {name}")
        return name

    def _admin(self, statement: str) -> None:
        with psycopg.connect(self.server.url(), autocommit=True) as admin:
            admin.execute(statement.encode())

    def clear(self) -> None:
        """Logs and journals of a storm that is over."""
        for path in self.directory.iterdir():
            shutil.rmtree(path, ignore_errors=True)

    def close(self) -> None:
        if self._server is not None:
            self._server.remove()


def migrate(url: str) -> None:
    async def up() -> None:
        store = make_store(url, features=installed())
        await store.migrations.up()
        await store.close()

    asyncio.run(up())


@contextlib.contextmanager
def small_disk(directory: Path, megabytes: int) -> Iterator[Path | None]:
    """A file system of this size, or None where mounting is not permitted."""
    mounted = (
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0755", "storm", str(directory)],
            capture_output=True,
            check=False,
        )
        if os.getuid() == 0 and shutil.which("mount")
        else None
    )
    if mounted is None or mounted.returncode != 0:
        yield None
        return
    try:
        yield directory
    finally:
        subprocess.run(["umount", "-l", str(directory)], capture_output=True, check=False)


def fill(directory: Path) -> Path:
    """Take every byte that is left; removing the file gives them back."""
    ballast = directory / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        for size in (1 << 20, 1 << 16, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"\0" * size)
    return ballast
