"""What a process imports, by what it does: modules are counted here, since milliseconds are the machine's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# Slow to import, and each is wanted by few processes.
HEAVY = ["asyncpg", "fastapi", "jinja2", "multiprocessing", "pydantic", "pydantic_core", "pydantic_settings", "rich"]
HEAVY += ["anyio", "httpx", "opentelemetry", "sentry_sdk", "typer", "uvicorn"]
SAY = "import json, sys; print(json.dumps(sorted(sys.modules)))"


def modules(code: str, folder: Path) -> set[str]:
    """Returns what a new process has imported after this code."""
    given = {name: value for name, value in os.environ.items() if not name.startswith(("REDRIVE_", "COVERAGE_"))}
    command = [sys.executable, "-c", f"{code}\n{SAY}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=given, timeout=60, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def command(*arguments: str) -> str:
    return f"from redrive.cli.main import run\nassert run({list(arguments)!r}) == 0"


def heavy(found: set[str]) -> list[str]:
    return [name for name in HEAVY if name in found]


def test_import_redrive_settings_and_help_load_no_other_part(tmp_path: Path) -> None:
    """In one process: what is not there at the end was not there before."""
    (tmp_path / "redrive.toml").write_text("redrive_port = 80\ntask_worker_kind_concurrency = { A = 1 }\n")
    ours = "{name for name in sys.modules if name.startswith('redrive')}"
    alone = f"import sys, redrive\nassert {ours} == {{'redrive', 'redrive.version'}}"
    settings = "from redrive.settings import load_settings\nassert load_settings().port == 80"
    each = [["version"], ["version", "--json"], ["--version"], ["--help"], ["-h"], []]
    found = modules("\n".join([alone, settings, *(command(*arguments) for arguments in each)]), tmp_path)
    assert heavy(found) == []
    assert not {name for name in found if name.startswith(("redrive.cli.commands", "redrive.app", "redrive.ops"))}


def test_every_name_is_there_when_it_is_asked_for(tmp_path: Path) -> None:
    whole = "from redrive import *\nimport redrive\nassert App is redrive.App and redrive.errors.StoreUnavailable"
    assert "redrive.app" in modules(f"{whole}\nassert set(redrive.__all__) <= set(dir(redrive))", tmp_path)


def test_a_command_loads_no_other(tmp_path: Path) -> None:
    found = modules(command("limits", "--help"), tmp_path)
    ours = {name for name in found if name.startswith("redrive.cli.commands.")}
    assert ours == {"redrive.cli.commands.limits"}
    assert [name for name in heavy(found) if name in ("fastapi", "uvicorn", "rich", "jinja2")] == []


# Parts of ops that look at everything, or act on it: not for who lists tasks or counts them.
_OPERATIONS = tuple(f"ops.operations.{name}" for name in ("drive", "erase", "lifecycle"))
OTHERS = ("ops.doctor", "ops.drill", "ops.audit_archive", *_OPERATIONS, "ops.sign_in", "worker", "api")


def test_ordinary_commands_load_what_they_show(tmp_path: Path) -> None:
    each = [["migrate", "--create"], ["stats", "--json"], ["list", "--json"]]
    found = modules("\n".join(command(*arguments) for arguments in each), tmp_path)
    assert [name for name in heavy(found) if name not in ("typer", "rich", "pydantic", "pydantic_core")] == []
    assert sorted(name for name in found if name.startswith(tuple(f"redrive.{other}" for other in OTHERS))) == []


APP = """
import asyncio, sys
from typing import Any, Literal
from redrive import App, Context
app = App("sqlite:///tasks.db")

@app.task("LOOSE")
async def loose(ctx, payload): ...

@app.task("PLAIN")
async def plain(ctx: Context, to: str, copies: int = 1, extra: dict[str, Any] | None = None) -> None: ...

@app.task("LATER")
async def later(ctx: Context, names: list[str], how: Literal["a", "b"] = "a") -> None: ...

@app.task("OPEN")
def many(ctx: Context, **given): ...
"""
ENQUEUE = """
from appmod import app, plain
async def main():
    await app.enqueue("LOOSE", {"any": ["thing", 1.5, None]})
    await app.enqueue("PLAIN", {"to": "a@b.c", "copies": 2})
    await app.enqueue("OPEN", {"x": 1})
    await plain.enqueue("a@b.c", extra={"a": [1]})
    await app.enqueue_many([("PLAIN", {"to": "x"})] * 3)
    await app.close()
asyncio.run(main())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "appmod.py").write_text(APP)
    return tmp_path


def test_plain_signatures_are_declared_and_enqueued_with_nothing_else_loaded(folder: Path) -> None:
    found = modules(f"import asyncio{ENQUEUE}", folder)
    assert heavy(found) == []
    others = ("redrive.worker", "redrive.ops", "redrive.observe", "redrive.integrations", "redrive.api", "redrive.cli")
    assert sorted(name for name in found if name.startswith((*others, "redrive.stores.postgres.store"))) == []
    assert not found & {"redrive.kernel.failure", "redrive.kernel.marks", "redrive.kernel.message_template"}


def test_pydantic_is_imported_by_the_signature_that_needs_it(folder: Path) -> None:
    code = (
        "import sys\nfrom typing import Annotated\nfrom appmod import app\n"
        "@app.task('PLAINER')\nasync def plainer(ctx, x: list[list[int]], y: str | None): ...\n"
        "assert 'pydantic' not in sys.modules\n"
        "@app.task('TYPED')\nasync def typed(ctx, x: Annotated[int, 'x']): ..."
    )
    assert "pydantic" in modules(code, folder)


@pytest.mark.parametrize("where", ["site/shop.egg-info"])
def test_a_feature_of_an_installed_package_is_found(where: str, tmp_path: Path) -> None:
    """The quick look must never miss what Python's own way finds."""
    made = tmp_path / where
    made.mkdir(parents=True)
    (made / "entry_points.txt").write_text("[redrive.features]\nshop = shop_feature:SHOP\n")
    (made / ("METADATA" if "dist" in where else "PKG-INFO")).write_text(
        "Metadata-Version: 2.1\nName: shop\nVersion: 1\n"
    )
    (tmp_path / "site" / "shop_feature.py").write_text(
        "from redrive.kernel.feature import Feature\nSHOP = Feature('shop', 'shop_feature')\n"
    )
    code = "import sys; sys.path.append('site')\nfrom redrive.features import installed\n"
    found = modules(f"{code}assert installed()[-1].name == 'shop'", tmp_path)
    assert "importlib.metadata" in found
    assert "importlib.metadata" not in modules(
        "from redrive.features import BUILT_IN, installed\nassert len(installed()) == len(BUILT_IN)", tmp_path
    )


def test_an_archive_on_the_path_is_left_to_python(tmp_path: Path) -> None:
    (tmp_path / "parts.zip").write_bytes(b"PK\x05\x06" + bytes(18))
    code = "import sys; sys.path.append('parts.zip')\nfrom redrive.features import installed\nassert installed()"
    assert "importlib.metadata" in modules(code, tmp_path)


def test_what_forked_processes_begin_with_is_there(tmp_path: Path) -> None:
    """A name that is gone would only make them slow: nobody else says so."""
    root = Path(__file__).parents[2]
    assert "redrive.cli.main" in modules(
        f"import sys; sys.path.insert(0, {str(root)!r}); import tests.preload", tmp_path
    )
