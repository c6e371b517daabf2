"""``--app``: every way to get it wrong has an answer that helps."""

from __future__ import annotations

from pathlib import Path

import pytest

CASES = [
    ("nowhere:app", "there is no module 'nowhere'", "project's directory"),
    ("broken:app", "importing broken failed: ZeroDivisionError: division by zero", "broken.py, line 2"),
    ("needs:app", "importing needs failed: ModuleNotFoundError: No module named 'absent_library'", "needs.py"),
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
    (here / "leaves.py").write_text("raise SystemExit(4)\n")
    (here / "empty.py").write_text("")
    (here / "badurl.py").write_text("from redrive import App\napp = App('mysql://x')\n")


@pytest.mark.parametrize(("spec", "message", "help_"), CASES, ids=[case[0] for case in CASES])
def test_mistakes(redrive, spec: str, message: str, help_: str) -> None:
    said = redrive("enqueue", "SYSTEM_HEALTH_CHECK", "--app", spec, "--json")
    assert (said.code, said.error["code"]) == (1, "CONFIG_INVALID")
    assert message in said.error["message"]
    assert help_ in said.error["message"] + said.error["hint"]
    plain = redrive("enqueue", "SYSTEM_HEALTH_CHECK", "--app", spec).err
    assert plain.startswith("error: ") and "Traceback" not in plain


def test_the_attribute_may_be_left_out_and_the_environment_counts(redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    assert redrive("enqueue", "SYSTEM_HEALTH_CHECK", "--app", "tasks").code == 0
    monkeypatch.setenv("REDRIVE_APP", "nowhere:app")
    assert redrive("stats").code == 1
    assert redrive("stats", "--app", "tasks").code == 0


def test_the_url_option_wins_over_the_apps_own(redrive, here: Path) -> None:
    (here / "own.py").write_text("from redrive import App\napp = App('sqlite:///own.db')\n")
    redrive("enqueue", "SYSTEM_HEALTH_CHECK", "--app", "own")
    assert (here / "own.db").exists()
    redrive("enqueue", "SYSTEM_HEALTH_CHECK", "--app", "own", "--url", "sqlite:///other.db")
    assert (here / "other.db").exists()
    assert len(redrive("list", "--url", "sqlite:///own.db", "--json").json["tasks"]) == 1
