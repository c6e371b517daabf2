"""The helper for Django: a save and its event are one transaction, or are refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from psycopg import conninfo

from tests.outbox.conftest import BOTH_STORES, World

pytestmark = pytest.mark.anyio
SCRIPT = Path(__file__).parent / "django_notes.py"


def database(url: str) -> dict[str, Any]:
    if url.startswith("sqlite"):
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": url.removeprefix("sqlite:///")}
    parts = conninfo.conninfo_to_dict(url)
    names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    found = {key: str(parts[name]) for key, name in names.items() if parts.get(name)}
    return {"ENGINE": "django.db.backends.postgresql", **found}


@BOTH_STORES
async def test_saves_and_deletes_are_published(world: World, url: str, tmp_path: Path) -> None:
    environment = {**os.environ, "DATABASE": json.dumps(database(url))}
    done = subprocess.run([sys.executable, SCRIPT], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    tasks = sorted(await world.tasks(), key=lambda task: task.id.int)
    assert [(task.scope, task.payload["op"], task.payload["version"]) for task in tasks] == [
        ("note:5", "create", 1),
        ("note:5", "upsert", 2),
        ("note:6", "create", 1),
        ("note:6", "delete", 2),
        ("note:6", "create", 1),
        ("draft:7", "create", 1),
        ("draft:7", "delete", 2),
    ]
    assert tasks[0].payload["payload"] == {"id": 5, "title": "milk", "price": "1.50", "version": 1}
    await world.drain()
    assert await world.versions() == {"note:5": 2, "note:6": 1}, "what was deleted, and is created again, is there"
    assert (await world.fts.get("note:5"))["title"] == "butter"
