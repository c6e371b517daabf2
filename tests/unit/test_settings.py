"""Settings that cannot be used say where, what and how instead; and show no login."""

from __future__ import annotations

from pathlib import Path

import pytest

from redrive.errors import ConfigError
from redrive.ops.audit_archive import archive_at
from redrive.settings import MAPS, Settings, _name, load_settings, misspelt

SECRET = "AKIA:s3cr3t/key"


@pytest.mark.parametrize(
    "field", [name for name, one in Settings.model_fields.items() if "dict" in str(one.annotation)]
)
def test_a_map_that_is_no_json_says_where(monkeypatch: pytest.MonkeyPatch, field: str) -> None:
    name = _name(field)
    monkeypatch.setenv(name, '{"reports": {"look" "x"}}')
    with pytest.raises(ConfigError, match=f"{name} is not JSON: expecting ':' delimiter at character 21") as refused:
        load_settings()
    assert "near" in refused.value.message and refused.value.hint is not None
    monkeypatch.setenv(name, MAPS[field])
    assert MAPS[field] in refused.value.hint and getattr(load_settings(), field), "the example is one"


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
        ("REDRIVE_URLS", "REDRIVE_URL"),
        ("TASK_WORKER_LEASE", "TASK_WORKER_LEASE_MS"),
        ("INTERNAL_WORKER_SECRETS", "INTERNAL_WORKER_SECRET"),
    ],
)
def test_what_is_misspelt_is_said(monkeypatch: pytest.MonkeyPatch, wrong: str, right: str) -> None:
    monkeypatch.setenv(wrong, "1")
    assert misspelt() == [f"{wrong} is set and is no setting of redrive; did you mean {right}?"]


@pytest.mark.parametrize(
    "place",
    [f"s3://{SECRET}@bucket/x", "s3://k:s3cr3t@bucket", "s3:k:s3cr3t@bucket", "https://k:s3cr3t@host/x", "s3://"],
)
def test_the_place_of_an_archive_shows_no_login(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    with pytest.raises(ConfigError) as refused:
        archive_at(place)
    assert "s3cr3t" not in str(refused.value) and "AKIA" not in str(refused.value)
    monkeypatch.setenv("TASK_AUDIT_ARCHIVE", "s3://k:s3cr3t@bucket/x")
    with pytest.raises(ConfigError, match="TASK_AUDIT_ARCHIVE: a login does not belong there") as refused:
        load_settings()
    assert "s3cr3t" not in str(refused.value)
