"""Connections, routes and groups of workers in redrive.toml: what is said there, and where a mistake stands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from redrive import App
from redrive.errors import ConfigError
from redrive.settings import (
    DEFAULT_URL,
    Options,
    Settings,
    WorkerGroup,
    configured_app,
    effective,
    fields_of,
    load_settings,
)

TWO = """
[connections.main]
url = "sqlite:///main.db"
[connections.insights]
url = "sqlite:///insights.db"
"""
Write = Callable[[str], Path]


@pytest.fixture
def write(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Write:
    monkeypatch.chdir(tmp_path)

    def put(text: str) -> Path:
        (tmp_path / "redrive.toml").write_text(text)
        return tmp_path / "redrive.toml"

    return put


def test_without_connections_there_is_one_store(write: Write) -> None:
    settings = load_settings()
    assert (settings.default_connection, settings.other_urls, settings.url) == ("default", {}, DEFAULT_URL)
    app = App()
    assert list(app.connections) == ["default"] and app.connections.routed is None and app.registry.routing is None


def test_the_default_is_the_chosen_one_else_the_first(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write(TWO)
    settings = load_settings()
    assert (settings.default_connection, settings.url) == ("main", "sqlite:///main.db")
    assert settings.other_urls == {"insights": "sqlite:///insights.db"}
    monkeypatch.setenv("QUEUE_CONNECTION", "insights")
    chosen = load_settings()
    assert (chosen.default_connection, chosen.url) == ("insights", "sqlite:///insights.db")
    assert list(App().connections) == ["insights", "main"]


def test_redrive_url_is_the_url_of_the_default_connection(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write(TWO)
    monkeypatch.setenv("REDRIVE_URL", "sqlite:///elsewhere.db")
    app = App()
    assert (app.url, app.at("insights").url) == ("sqlite:///elsewhere.db", "sqlite:///insights.db")
    assert App("sqlite:///code.db").url == "sqlite:///code.db"


def test_a_url_with_a_password_comes_from_the_environment(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write('[connections.main]\nurl = "sqlite:///m.db"\n[connections.insights]\nurl_from = "INSIGHTS_URL"\n')
    with pytest.raises(
        ConfigError, match=r"insights\.url_from: the environment has no INSIGHTS_URL .*line 4"
    ) as refused:
        load_settings()
    assert "export INSIGHTS_URL=" in str(refused.value.hint) and "remove" not in str(refused.value.hint)
    monkeypatch.setenv("INSIGHTS_URL", "sqlite:///i.db")
    settings = load_settings()
    assert (settings.url, settings.other_urls) == ("sqlite:///m.db", {"insights": "sqlite:///i.db"})


def test_a_default_connection_without_a_url_is_no_file_that_nobody_knows(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tasks would be in a redrive.db of whatever folder a process was started in."""
    write('[connections.main]\n[connections.insights]\nurl = "sqlite:///i.db"\n')
    with pytest.raises(ConfigError, match=r"main: it needs url, or url_from .*, or REDRIVE_URL .*toml, line 1"):
        App()
    assert App("sqlite:///code.db").url == "sqlite:///code.db"
    monkeypatch.setenv("REDRIVE_URL", "sqlite:///said.db")
    assert App().url == "sqlite:///said.db"
    monkeypatch.delenv("REDRIVE_URL")
    write('redrive_url = "sqlite:///file.db"\n[connections.main]\n')
    assert App().url == "sqlite:///file.db"


def test_a_misspelt_table_is_told_and_not_what_it_leaves_missing(write: Write) -> None:
    write(
        '[connections.main]\nurl = "sqlite:///m.db"\n[conections.insights]\nurl = "sqlite:///i.db"\n'
        '[routes]\n"A" = { connection = "insights" }\n'
    )
    for bare in (True, False):
        with pytest.raises(
            ConfigError, match=r"conections \(did you mean connections\?\) \(redrive.toml, line 3"
        ) as refused:
            load_settings(bare=bare)
        assert "no connection" not in refused.value.message


def test_which_application_is_known_before_the_rest_is_right(write: Write) -> None:
    write('redrive_app = "shop:app"\nredrive_port = "x"\n')
    assert configured_app() == "shop:app"
    write("redrive_app = 5\n")
    with pytest.raises(ConfigError, match="REDRIVE_APP: it has to be a text"):
        configured_app()


def test_a_group_of_workers_has_the_options_of_a_worker_and_what_is_documented(write: Write) -> None:
    write('[workers.reports]\nqueues = ["reports", "slow"]\nprocesses = 3\ntries = 2\nmax_time = 60\n')
    assert load_settings().workers["reports"].options == {"queues": ("reports", "slow"), "tries": 2, "max_time": 60.0}
    assert set(fields_of(Options)) < set(fields_of(WorkerGroup)), "none is said again"
    besides = set(fields_of(WorkerGroup)) - set(fields_of(Options))
    said = {name: fields_of(WorkerGroup)[name].default for name in fields_of(WorkerGroup)}
    assert not besides & WorkerGroup(**said).options.keys(), "redrive work would refuse it: there is no such option"
    page = (Path(__file__).parents[2] / "docs/connections.md").read_text(encoding="utf-8")
    assert [name for name in sorted(besides) if f"`{name}`" not in page] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('queue_connection = "insigths"\n' + TWO, r"no connection 'insigths' \(did you mean insights\?\) (F, line 1)"),
        ("[connections.Main]\nurl = 'x'\n", "Main: a connection is named in small letters"),
        ("[connections.all]\nurl = 'x'\n", "not 'all' (F, line 1, [connections.all])"),
        (TWO + "[connections.third]\n", "third: it needs url, or url_from"),
        (TWO + "[connections.third]\nurl = 'sqlite:///./main.db'\n", "third: it is the same store as main"),
        (TWO + "[connections.third]\nuri = 'x'\n", "third.uri: there is no such field; did you mean url? (F, line 7"),
        (TWO + "[connections.third]\nurl_from = 'postgresql://u:pw@h/d'\n", "url_from: that is no name of an environ"),
        ("redrive_url = 'sqlite:///x.db'\n" + TWO, "the connection main has a URL of its own; say it once (F, line 1)"),
        (
            TWO + "[routes]\n'R*' = {connection = 'mian'}\n",
            "R*.connection: there is no connection 'mian' (did you mean",
        ),
        (TWO + "[routes]\n'R *' = {queue = 'x'}\n", "is not a valid name (F, line 7"),
        (TWO + "[routes]\n'R*' = {}\n", "R*: it says neither a connection nor a queue"),
        ("[workers.a]\nconcurency = 3\n", "a.concurency: there is no such field; did you mean concurrency? (F, line 2"),
        (
            "[workers.a]\nqueues = []\n",
            "a.queues: it names no queue; left out, all of the application are served (F, line 2",
        ),
        ("[workers.a]\nqueues = ['a b']\n", "a.queues: queue 'a b' is not a valid name (F, line 2"),
        (
            "[workers.http]\n",
            "digits, - and _, and not 'http', 'worker', 'migrate'",
        ),
        ("[workers.a-b]\n[workers.a_b]\n", "a_b: its programs would have the names of those of 'a-b' (F, line 2"),
    ],
)
def test_a_mistake_is_told_with_its_place(write: Write, text: str, said: str) -> None:
    write(text)
    with pytest.raises(ConfigError) as refused:
        load_settings()
    assert said.replace("\\", "").replace("F,", "redrive.toml,") in refused.value.message
    assert "pw" not in str(refused.value), "no password is quoted"


def test_a_setting_that_others_bound_is_listed_as_it_is_in_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASK_WORKER_HEARTBEAT_MS", "900000")
    monkeypatch.setenv("TASK_WORKER_INTERVAL_MS", "700")
    listed = {one.name: one for one in effective(load_settings(bare=True))}
    bounded = listed["TASK_WORKER_HEARTBEAT_MS"]
    assert (bounded.value, bounded.source, bounded.given) == ("599500", "environment", "900000")
    assert (listed["TASK_WORKER_RECOVERY_INTERVAL_MS"].value, listed["TASK_WORKER_INTERVAL_MS"].value) == ("700", "700")
    assert {one.name for one in listed.values() if one.given is not None} == {bounded.name}


def test_urls_are_shown_nowhere(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write(TWO.replace("insights.db", "s3cret.db"))
    settings = load_settings()
    listed = {one.name: one for one in effective(settings)}
    assert listed["REDRIVE_CONNECTIONS"].value is None
    assert "s3cret" not in f"{settings!r}{settings.connections!r}{listed!r}"
    monkeypatch.setenv("REDRIVE_CONNECTIONS", '{"main": {"url": "postgresql://u:s3cret@h/d" "x"}}')
    with pytest.raises(ConfigError, match="REDRIVE_CONNECTIONS is not JSON") as refused:
        load_settings()
    assert "s3cret" not in str(refused.value)


def test_the_environment_has_them_as_json(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRIVE_CONNECTIONS", '{"a": {"url": "sqlite:///a.db"}, "b": {"url": "sqlite:///b.db"}}')
    monkeypatch.setenv("REDRIVE_ROUTES", '{"X": {"connection": "b"}}')
    monkeypatch.setenv("REDRIVE_WORKERS", '{"w": {"connection": "b"}}')
    settings = load_settings()
    assert (settings.default_connection, settings.routes["X"].connection) == ("a", "b")
    assert settings.workers["w"].connection == "b" and isinstance(settings, Settings)
