"""``--app``: every way to get it wrong has an answer that helps."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from redrive import App
from redrive.cli.main import run
from redrive.cli.support.loading import load
from redrive.errors import SchemaError

SCHEDULE = """from redrive import App
app = App()
@app.task("A")
async def a(ctx): ...
app.periodic("A", cron="0 25 * * *")
"""

CASES = [
    ("nowhere:app", "there is no module 'nowhere'", "project's directory"),
    ("broken:app", "importing broken failed: ZeroDivisionError: division by zero", "broken.py, line 2"),
    ("needs:app", "importing needs failed: ModuleNotFoundError: No module named 'absent_library'", "needs.py"),
    ("syntax:app", "importing syntax failed: SyntaxError: '(' was never closed", "syntax.py, line 2"),
    ("indent:app", "importing indent failed: IndentationError: unexpected indent", "indent.py, line 2"),
    ("outer:app", "importing outer failed: SyntaxError: '(' was never closed", "syntax.py, line 2"),
    ("library:app", "importing library failed: json.decoder.JSONDecodeError: Expecting", "library.py, line 2"),
    ("lines:app", "importing lines failed: ValueError: first", "lines.py, line 1"),
    ("schedule:app", "schedule cannot be used: '0 25 * * *' is not a cron expression", "schedule.py, line 5"),
    ("leaves:app", "importing leaves failed: SystemExit", "leaves"),
    ("tasks:nope", "no attribute 'nope'", "--app tasks:app"),
    ("tasks:number", "is a int, not a redrive App", "--app tasks:app"),
    ("empty:app", "no attribute 'app'", "make one: app = App()"),
    ("tasks.py:app", "names a file", "--app tasks:app"),
    ("ta sks:app", "is not module:app", "mypackage.tasks:app"),
    ("badurl:app", "no store is known for the URL", "sqlite:///"),
]


@pytest.fixture(autouse=True)
def modules(here: Path) -> None:
    (here / "tasks.py").write_text("from redrive import App\napp = App()\nnumber = 7\n")
    (here / "broken.py").write_text("x = 1\nx / 0\n")
    (here / "needs.py").write_text("import absent_library\n")
    (here / "syntax.py").write_text("x = 1\ny = (2\n")
    (here / "indent.py").write_text("x = 1\n  y = 2\n")
    (here / "outer.py").write_text("import syntax\n")
    (here / "library.py").write_text("import json\njson.loads('{')\n")
    (here / "lines.py").write_text("raise ValueError('first\\nsecond')\n")
    (here / "schedule.py").write_text(SCHEDULE)
    (here / "leaves.py").write_text("raise SystemExit(4)\n")
    (here / "empty.py").write_text("")
    (here / "badurl.py").write_text("from redrive import App\napp = App('mysql://x')\n")


@pytest.mark.parametrize(("spec", "message", "help_"), CASES, ids=[case[0] for case in CASES])
def test_mistakes(redrive, spec: str, message: str, help_: str) -> None:
    said = redrive("enqueue", "SYSTEM_HEALTH_CHECK", "--app", spec, "--json")
    code = "INPUT_INVALID" if spec == "schedule:app" else "CONFIG_INVALID"
    # What --app or a URL says is a wrong value; what an import runs into is a failure.
    assert (said.code, said.error["code"]) == (1 if message.startswith("importing") else 2, code)
    assert message in said.error["message"]
    assert help_ in said.error["message"] + said.error["hint"]
    plain = redrive("enqueue", "SYSTEM_HEALTH_CHECK", "--app", spec).err
    assert plain.startswith("error: ") and "Traceback" not in plain
    assert "redrive/cli" not in plain and "importlib" not in plain, "no frames but the application's"


def test_a_syntax_error_shows_its_line(redrive) -> None:
    [first, source, mark, hint] = redrive("stats", "--app", "outer").err.splitlines()
    assert first.endswith("syntax.py, line 2)")
    assert (source.strip(), mark.strip()) == ("y = (2", "^")
    assert hint == "→ correct it there, and try again"


def test_an_error_of_the_store_at_import_keeps_its_exit_code(redrive, here: Path) -> None:
    url = "postgresql://postgres@127.0.0.1:1/x"
    (here / "eager.py").write_text(f"from redrive import App\napp = App({url!r})\napp.sync.enqueue('A')\n")
    said = redrive("stats", "--app", "eager")
    assert said.code == 3
    assert "eager cannot be used" in said.err and "eager.py, line 3" in said.err


def test_the_attribute_may_be_left_out_and_the_environment_counts(redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    assert redrive("enqueue", "SYSTEM_HEALTH_CHECK", "--app", "tasks").code == 0
    monkeypatch.setenv("REDRIVE_APP", "nowhere:app")
    assert redrive("stats").code == redrive("work").code == 2
    assert redrive("stats", "--app", "tasks").code == 0


def test_the_url_option_wins_over_the_apps_own(redrive, here: Path) -> None:
    (here / "own.py").write_text("from redrive import App\napp = App('sqlite:///own.db')\n")
    redrive("enqueue", "SYSTEM_HEALTH_CHECK", "--app", "own")
    assert (here / "own.db").exists()
    redrive("enqueue", "SYSTEM_HEALTH_CHECK", "--app", "own", "--url", "sqlite:///other.db")
    assert (here / "other.db").exists()
    assert len(redrive("list", "--url", "sqlite:///own.db", "--json").json["items"]) == 1


def test_the_environments_url_wins_over_the_apps_own_in_every_command(
    redrive, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "own.py").write_text("from redrive import App\napp = App('sqlite:///own.db')\n")
    monkeypatch.setenv("REDRIVE_URL", "sqlite:///env.db")
    named = ("--app", "own")
    assert "env.db" in redrive("migrate", *named).out
    made = redrive("enqueue", "SYSTEM_HEALTH_CHECK", *named, "--json").json["id"]
    assert redrive("work", *named, "--stop-when-empty").code == 0
    assert redrive("show", made, *named, "--json").json["task"]["state"] == "completed"
    assert redrive("stats", *named, "--json").json["totals"]["completed"] == 1
    assert not (here / "own.db").exists()
    redrive("enqueue", "SYSTEM_HEALTH_CHECK", *named, "--url", "sqlite:///option.db")
    assert (here / "option.db").exists(), "the option wins over both"
    monkeypatch.setenv("REDRIVE_URL", "")
    (here / "second.py").write_text("from redrive import App\napp = App('sqlite:///own.db')\n")
    redrive("enqueue", "SYSTEM_HEALTH_CHECK", "--app", "second")
    assert (here / "own.db").exists(), "an empty variable is none"


@pytest.mark.parametrize("command", [["migrate"], ["enqueue", "A"], ["work", "--stop-when-empty"]])
def test_a_file_that_nobody_names_is_not_made_by_the_way(
    here: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    assert run(command) == 2
    told = capsys.readouterr().err
    assert "nothing names a store" in told and "--create" in told and not (here / "redrive.db").exists()
    assert run([*command, "--create"]) == 0 and (here / "redrive.db").exists()
    assert run(command) == 0, "it is there"


def test_the_hint_of_an_application_names_its_store(empty_postgres_url: str) -> None:
    with_password = re.sub("://([^:@/]+)(:[^@]*)?@", r"://\1:hunter2@", empty_postgres_url)
    app = App(with_password)
    with pytest.raises(SchemaError, match="no redrive schema yet") as refused:
        app.sync.enqueue("A")
    app.sync.close()
    assert refused.value.hint == f"run: redrive migrate --url {with_password.replace(':hunter2', '')}"


def test_the_stores_of_database_url(monkeypatch: pytest.MonkeyPatch, here: Path, redrive) -> None:
    monkeypatch.setenv("DATABASE_URL", "mysql://ann:hunter2@db/shop")
    assert App().url == "sqlite:///redrive.db"
    assert "DATABASE_URL is ignored: no store is known for it" in redrive("work", "--stop-when-empty").err
    monkeypatch.setenv("DATABASE_URL", "sqlite:///shop.db")
    assert App().url == "sqlite:///shop.db" and App("sqlite:///own.db").url == "sqlite:///own.db"
    assert "the store is that of DATABASE_URL" in redrive("work", "--stop-when-empty").err
    monkeypatch.setenv("REDRIVE_URL", "sqlite:///env.db")
    assert App().url == "sqlite:///env.db"
    assert "DATABASE_URL is ignored: another store is named" in redrive("work", "--stop-when-empty").err
    monkeypatch.delenv("REDRIVE_URL")
    (here / "redrive.toml").write_text('redrive_url = "sqlite:///file.db"\n')
    assert App().url == "sqlite:///file.db"


def test_in_python_the_url_in_the_code_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDRIVE_URL", "sqlite:///env.db")
    assert App("sqlite:///own.db").url == "sqlite:///own.db"
    assert App().url == "sqlite:///env.db"


def test_schedules_belong_to_the_import_path_unless_the_app_has_a_name(here: Path) -> None:
    (here / "own.py").write_text("from redrive import App\napp = App()\nnamed = App(name='billing')\n")
    assert load(None, "own").app.owner == "own:app"
    assert load(None, "own:named").app.owner == "billing"
    assert load(None, None).app.owner == "default"
