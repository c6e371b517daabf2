"""Every Python block of the documents runs, except those marked ``no-run``."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.commands import redrive, script

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(document: Path) -> list[str]:
    return _blocks_of(document.read_text(encoding="utf-8"))


def _blocks_of(text: str) -> list[str]:
    return [code for flags, code in BLOCK.findall(text) if "no-run" not in flags]


BY_SECTION = "coming-from.md"


@pytest.mark.parametrize("document", [d for d in DOCUMENTS if blocks(d) and d.name != BY_SECTION], ids=lambda d: d.name)
def test_python_blocks_run(document: Path, tmp_path: Path) -> None:
    _run_blocks(document.read_text(encoding="utf-8"), tmp_path)


def _sections_of(page: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return [section for section in re.split(r"^## ", text, flags=re.MULTILINE) if BLOCK.search(section)]


@pytest.mark.parametrize("section", _sections_of(BY_SECTION), ids=lambda text: text.splitlines()[0])
def test_each_section_runs_by_itself(section: str, tmp_path: Path) -> None:
    """Whoever comes from Django does not read what is for whoever comes from Celery."""
    _run_blocks(section, tmp_path)


def _run_blocks(text: str, tmp_path: Path) -> None:
    example = tmp_path / "example.py"
    example.write_text("\n\n".join(_blocks_of(text)), encoding="utf-8")
    script(example, code=0)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.name)
def test_relative_links_exist(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8"))
    missing = [target for target in targets if not (document.parent / target).exists()]
    assert missing == []


def test_every_setting_is_documented() -> None:
    from redrive.features import installed
    from redrive.settings import Settings
    from redrive.settings.declare import names_of

    text = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert [name for name in names_of(Settings) if f"`{name}`" not in text] == []
    whole = "".join(document.read_text(encoding="utf-8") for document in DOCUMENTS)
    features = [name for one in installed() if one.settings is not None for name in names_of(one.settings)]
    assert [name for name in features if f"`{name}`" not in whole] == []


def _settings_rows() -> dict[str, str]:
    """What the tables of the settings page say is the default, by name."""
    text = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    plain = re.findall(r"^\| `([A-Z_]+)` \| ([^|]*) \|", text, re.MULTILINE)
    kept = re.findall(r"^\| [^|]+ \| `([A-Z_]+)`[^|]*\| ([^|]*) \|", text, re.MULTILINE)
    return dict(kept) | dict(plain)


def test_documented_defaults_are_those_of_the_code() -> None:
    from redrive.settings import Settings, fields_of, name_of

    said = {name: re.match(r"[\d.]+(?![\w.])", default.strip()) for name, default in _settings_rows().items()}
    numbers = {name: float(found[0]) for name, found in said.items() if found}
    code = {name_of(Settings, field): info.default for field, info in fields_of(Settings).items()}
    assert {name: code[name] for name in numbers} == numbers
    both = {"REDRIVE_PORT", "REDRIVE_HOST"}  # one row, two defaults
    with_number = {name for name, default in code.items() if isinstance(default, int | float)}
    assert with_number - both <= set(numbers), "every number of the code is said"


def test_the_file_of_the_settings_page_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from redrive.settings import load_settings

    text = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    (tmp_path / "redrive.toml").write_text(text.partition("```toml\n")[2].partition("```")[0], encoding="utf-8")
    for name in [name for name in os.environ if name.startswith(("REDRIVE_", "TASK_"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    settings = load_settings()
    assert (settings.app, settings.lease, settings.kind_concurrency) == ("shop.tasks:app", 60, {"VIDEO_GEN": 1})


def test_every_option_of_a_worker_is_documented() -> None:
    from redrive.cli.commands.up import up
    from redrive.cli.commands.work import work
    from redrive.worker.config import WorkerOptions

    text = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    table = text.partition("## Options of commands")[2].partition("\n## ")[0]
    said = set(re.findall(r"`(--[a-z-]+)`", table))
    assert said == {option for command in (work, up) for option in _options(command)}
    named = {"--queue" if name == "queues" else "--" + name.replace("_", "-") for name in WorkerOptions.__annotations__}
    assert named <= said


def _options(command: Callable[..., Any]) -> Iterator[str]:
    for parameter in typing.get_type_hints(command, include_extras=True).values():
        for info in getattr(parameter, "__metadata__", ()):
            if isinstance(info, typer.models.ArgumentInfo):
                continue
            yield next(name for name in (info.default, *(info.param_decls or ())) if str(name).startswith("--"))


def test_every_other_variable_is_documented() -> None:
    from redrive.settings import OTHER_NAMES

    text = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    internal = {"REDRIVE_DEV", "REDRIVE_SUPERVISED", "REDRIVE_METRICS_PIPE"}
    assert [name for name in sorted(OTHER_NAMES - internal) if f"`{name}`" not in text] == []


def test_the_postgresql_section_of_the_quickstart_works_as_written(empty_postgres_url: str, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    [application] = [code for code in blocks(ROOT / "docs" / "quickstart.md") if code.startswith("# reports.py")]
    (tmp_path / "reports.py").write_text(application, encoding="utf-8")
    section = text.partition("## PostgreSQL")[2].partition("```sh\n")[2].partition("```")[0]
    commands = [line for line in section.splitlines() if line.startswith("redrive ")]
    assert [command.split()[1] for command in commands] == ["migrate", "enqueue", "work"]
    commands[-1] += " --stop-when-empty"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("REDRIVE_", "TASK_WORKER_"))}
    for command in [*commands, "redrive list --json"]:
        env = {**kept, "REDRIVE_URL": empty_postgres_url}
        done = redrive(*shlex.split(command, comments=True)[1:], cwd=tmp_path, env=env, code=0)
    [task] = json.loads(done.stdout)["items"]
    assert (task["kind"], task["state"]) == ("BUILD_REPORT", "completed")
    assert not list(tmp_path.glob("*.db"))


def test_the_script_of_the_embedding_page_stops_at_sigterm(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "embedding.md").read_text(encoding="utf-8")
    [code] = [code for _, code in BLOCK.findall(text) if code.startswith("# relay.py")]
    script, log = tmp_path / "relay.py", tmp_path / "log"
    script.write_text(code, encoding="utf-8")
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, script], cwd=tmp_path, stdout=out, stderr=out)
    try:
        give_up = time.monotonic() + 60
        while "worker.started" not in log.read_text():
            assert process.poll() is None and time.monotonic() < give_up, log.read_text()
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
    assert "0 done" in log.read_text()
