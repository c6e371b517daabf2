"""Settings that cannot be used say where, what and how instead; and show no login."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import pytest

from redrive.errors import ConfigError
from redrive.ops.audit_archive import archive_at
from redrive.settings import (
    MOST_MS,
    FeatureSettings,
    Settings,
    Unfit,
    fields_of,
    load_settings,
    misspelt,
    name_of,
    setting,
)

MAPS = {name: one.examples[0] for name, one in fields_of(Settings).items() if one.examples}
SECRET = "AKIA:s3cr3t/key"
# Texts that everybody may see who may see settings: where something is and how it is called, never how one gets in.
SHOWN = {
    *("connection", "app", "host", "trusted_proxies", "metrics_host", "worker_id", "audit_archive"),
    *("alert_from", "alert_runbooks", "callback_base_url", "build"),
}


def test_of_every_text_somebody_has_decided_whether_it_is_a_secret() -> None:
    texts = {name for name, one in fields_of(Settings).items() if one.kind in (str, str | None, list[str])}
    secrets = {name for name in texts if not fields_of(Settings)[name].repr}
    assert texts - secrets == SHOWN, "a new setting: a secret (repr=False in own.py), or may it be shown?"


@pytest.mark.parametrize("field", [name for name, one in fields_of(Settings).items() if "dict" in str(one.kind)])
def test_a_map_that_is_no_json_says_where(monkeypatch: pytest.MonkeyPatch, field: str) -> None:
    name = name_of(Settings, field)
    monkeypatch.setenv(name, '{"reports": {"look" "x"}}')
    with pytest.raises(ConfigError, match=f"{name} is not JSON: expecting ':' delimiter at character 21") as refused:
        load_settings()
    quoted = fields_of(Settings)[field].repr  # else it may have a secret in it
    assert ("near" in refused.value.message) == quoted and refused.value.hint is not None
    monkeypatch.setenv(name, MAPS[field])
    assert MAPS[field] in refused.value.hint and getattr(load_settings(), field), "the example is one"


@pytest.mark.parametrize(
    ("field", "text", "twice"),
    [
        ("kind_concurrency", '{"A": 1, "A": 2}', "A"),
        ("triage", '{"reports": {"look": "x", "look": "y"}}', "look"),
    ],
)
def test_a_name_that_stands_twice_in_a_map(monkeypatch: pytest.MonkeyPatch, field: str, text: str, twice: str) -> None:
    monkeypatch.setenv(name_of(Settings, field), text)
    with pytest.raises(ConfigError, match=f"{name_of(Settings, field)} has '{twice}' twice"):
        load_settings()


@pytest.mark.parametrize("field", ["lease_ms", "kind_rate_limit_ms"])
def test_no_span_is_longer_than_a_store_can_keep(monkeypatch: pytest.MonkeyPatch, field: str) -> None:
    is_map = field in MAPS
    for number, fits in ((MOST_MS, True), (MOST_MS + 1, False)):
        monkeypatch.setenv(name_of(Settings, field), f'{{"A": {number}}}' if is_map else str(number))
        if fits:
            load_settings()
        else:
            with pytest.raises(ConfigError, match=name_of(Settings, field)):
                load_settings()


def test_a_name_of_a_feature_that_is_misspelt_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTBOX_LEASE_SECONDS", "30")
    assert misspelt() == []
    monkeypatch.setenv("BATCH_SIZE", "10")  # somebody else's
    monkeypatch.setenv("OUTBOX_MAX_ATTEMPS", "3")
    assert misspelt() == ["OUTBOX_MAX_ATTEMPS is set and is no setting of redrive; did you mean OUTBOX_MAX_ATTEMPTS?"]


def test_an_unknown_name_in_the_file_is_guessed_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "redrive.toml"
    file.write_text("task_worker_leas_ms = 5000\nnonsense = 1\n")
    monkeypatch.setenv("REDRIVE_CONFIG", str(file))
    with pytest.raises(
        ConfigError,
        match=r"nonsense \(.*line 2\), task_worker_leas_ms \(did you mean task_worker_lease_ms\?\) \(.*line 1",
    ):
        load_settings()


def test_a_field_of_triage_that_there_is_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REDRIVE_TRIAGE", '{"reports": {"lok": "x"}}')
    with pytest.raises(
        ConfigError, match=r"REDRIVE_TRIAGE\.reports\.lok: there is no such field; there are look, problems"
    ):
        load_settings()


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("TASK_AUDIT_LOG_TTL_DAY", "TASK_AUDIT_LOG_TTL_DAYS"),
        ("TASK_WORKER_LEASE", "TASK_WORKER_LEASE_MS"),
    ],
)
def test_what_is_misspelt_is_said(monkeypatch: pytest.MonkeyPatch, wrong: str, right: str) -> None:
    monkeypatch.setenv(wrong, "1")
    assert misspelt() == [f"{wrong} is set and is no setting of redrive; did you mean {right}?"]


@pytest.mark.parametrize(
    "place",
    [f"s3://{SECRET}@bucket/x", "s3:k:s3cr3t@bucket", "https://k:s3cr3t@host/x"],
)
def test_the_place_of_an_archive_shows_no_login(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    with pytest.raises(ConfigError) as refused:
        archive_at(place)
    assert "s3cr3t" not in str(refused.value) and "AKIA" not in str(refused.value)
    monkeypatch.setenv("TASK_AUDIT_ARCHIVE", "s3://k:s3cr3t@bucket/x")
    with pytest.raises(ConfigError, match="TASK_AUDIT_ARCHIVE: a login does not belong there") as refused:
        load_settings()
    assert "s3cr3t" not in str(refused.value)


class Kinds(FeatureSettings):
    """A field of each type that settings have."""

    text: str = setting("KINDS_TEXT", "", pattern="^[a-z]*$", max_length=4)
    whole: int = setting("KINDS_WHOLE", 0, lt=100)
    number: float | None = setting("KINDS_NUMBER", None)
    switch: bool = setting("KINDS_SWITCH", False)
    choice: Literal["a", "b", "c"] = setting("KINDS_CHOICE", "a")
    names: list[str] = setting("KINDS_NAMES", [], min_length=1)
    either: int | str = setting("KINDS_EITHER", 0)
    ports: set[int] = setting("KINDS_PORTS", set())
    span: timedelta = setting("KINDS_SPAN", timedelta())
    folder: Path = setting("KINDS_FOLDER", Path())


@pytest.mark.parametrize(
    ("field", "given", "found"),
    [
        ("whole", " 5 ", 5),
        ("whole", 5.0, 5),
        ("number", "1e3", 1000.0),
        ("number", None, None),
        ("switch", "Yes", True),
        ("either", "x", "x"),
        ("ports", [1, "2"], {1, 2}),
        ("span", "PT5M", timedelta(minutes=5)),
        ("folder", "/tmp", Path("/tmp")),
    ],
)
def test_values_are_read_by_their_types(field: str, given: Any, found: Any) -> None:
    read = getattr(Kinds(**{field: given}), field)
    assert (read, type(read)) == (found, type(found))


@pytest.mark.parametrize(
    ("field", "given", "said"),
    [
        ("text", "A", "text: it has to match"),
        ("text", "abcde", "text: it has to have at most 4 characters"),
        ("whole", "5.5", "whole: it has to be a whole number"),
        ("whole", True, "whole: it has to be a whole number"),
        ("whole", 100, "whole: it has to be less than 100"),
        ("switch", "perhaps", "switch: it has to be true or false"),
        ("choice", "d", "choice: it has to be 'a', 'b' or 'c'"),
        ("names", [], "names: it has to have at least 1 item"),
        ("names", ["x", 5], "names.1: it has to be a text"),
        ("span", "soon", "span: Input should be a valid timedelta"),
        ("nmes", [], "nmes: there is no such field; did you mean names?"),
    ],
)
def test_values_that_do_not_fit_say_why(field: str, given: Any, said: str) -> None:
    with pytest.raises(Unfit) as refused:
        Kinds(**{field: given})
    assert str(refused.value).startswith(said)


def test_all_that_is_wrong_in_a_list_is_said() -> None:
    with pytest.raises(Unfit, match=r"names.1: it has to be a text; names.2: it has to be a text"):
        Kinds(names=["x", 5, 6])


def test_all_that_is_wrong_is_said_at_once_and_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "redrive.toml"
    file.write_text("# ports\nredrive_port = 70000\n\n[redrive_triage.reports]\nlook = 5\n")
    monkeypatch.setenv("REDRIVE_CONFIG", str(file))
    monkeypatch.setenv("TASK_WORKER_LEASE_MS", "soon")
    with pytest.raises(ConfigError) as refused:
        load_settings(concurrency=0)
    assert refused.value.message == (
        f"settings cannot be used: REDRIVE_PORT: it has to be at most 65535 ({file}, line 2); "
        "TASK_WORKER_CONCURRENCY: it has to be at least 1; "
        "TASK_WORKER_LEASE_MS: it has to be a whole number; "
        "REDRIVE_TRIAGE.reports.look: it has to be a text "
        f"({file}, line 5, [redrive_triage.reports])"
    )


def test_a_setting_stands_once_in_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "redrive.toml").write_text("port = 1\nredrive_port = 2\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="has port of redrive twice"):
        load_settings()


def test_a_default_is_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    one = load_settings()
    one.kind_concurrency["A"] = 1
    assert load_settings().kind_concurrency == {}
    changed = one.with_values(port=1)
    assert (changed.port, one.port, changed.source_of("port"), changed == one) == (1, 8321, "given", False)
