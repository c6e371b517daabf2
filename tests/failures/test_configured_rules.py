"""Rules of failures from redrive.toml come before the application's own, and mistakes are said with their line."""

from __future__ import annotations

from pathlib import Path

import pytest

from redrive import App, FailureRule
from redrive.cli.main import run
from redrive.errors import WrongSetting
from redrive.kernel.classify import classify
from redrive.settings import load_settings

MEMORY = "sqlite:///:memory:"
GOOD = """url = "sqlite:///:memory:"

[[failure_rules]]
words = ["out of credit", "余额不足"]
reason = "unpaid"
failure_type = "param_error"
retry = false

[[failure_rules]]
status = "5xx"
exception = "stripe.APIError"
reason = "stripe_down"  # while they are away
failure_type = "model_error"
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "redrive.toml"


def test_they_come_before_those_of_the_application(file: Path) -> None:
    file.write_text(GOOD)
    own = FailureRule(words="credit", reason="ours", failure_type="unknown")
    rules = App(MEMORY, failure_rules=[own]).registry.rules
    assert [rule.reason for rule in rules.table] == ["unpaid", "stripe_down", "ours"]
    found = classify(RuntimeError("you are out of credit"), rules=rules)
    assert (found.reason, found.type, found.retryable) == ("unpaid", "param_error", False)
    assert classify(RuntimeError("no credit card"), rules=rules).reason == "ours"


def test_the_environment_has_them_too(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDRIVE_FAILURE_RULES", '[{"status": 402, "reason": "unpaid", "failure_type": "param_error"}]')
    assert [rule.document()["status"] for rule in load_settings(url=MEMORY).failure_rules] == [[402]]
    monkeypatch.setenv("REDRIVE_FAILURE_RULES", "[{]")
    with pytest.raises(WrongSetting, match="REDRIVE_FAILURE_RULES: it is not JSON"):
        load_settings(url=MEMORY)


def test_settings_say_what_they_are_about(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(GOOD)
    assert run(["settings", "--changed"]) == 0
    assert "unpaid, stripe_down" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ('"5xx"|"6xx"', r"REDRIVE_FAILURE_RULES.1.status: status is a number .*line 10, \[failure_rules\]"),
        ('"model_error"|"model"', r"FAILURE_RULES.1.failure_type: .* is not one of .*line 13"),
        ("retry = false|retry = 0", r"FAILURE_RULES.0.retry: retry is True or False, not 0 .*line 7"),
        ('reason = "unpaid"|', r"FAILURE_RULES.0: reason is needed .*line 3, \[failure_rules\]"),
        ('reason = "unpaid"|reason = "a b"', r"FAILURE_RULES.0.reason: .* is not a valid name .*line 5"),
        ('status = "5xx"\nexception = "stripe.APIError"|', r"FAILURE_RULES.1: it fits everything .*line 9"),
        (
            'status = "5xx"\nexception = "stripe.APIError"|words = ["out of credit", "余额不足"]',
            r"FAILURE_RULES.1: it never applies: rule 0 fits the same failures first .*line 9",
        ),
    ],
)
def test_mistakes_are_said_with_their_line(file: Path, changed: str, said: str) -> None:
    was, _, now = changed.partition("|")
    assert was in GOOD
    file.write_text(GOOD.replace(was, now))
    with pytest.raises(WrongSetting, match=f"(?s){said}"):
        App(MEMORY)


def test_what_is_no_list_is_refused(file: Path) -> None:
    file.write_text('[failure_rules]\nreason = "x"\n')
    with pytest.raises(WrongSetting, match=r"it is a list of rules, in redrive.toml \[\[failure_rules\]\] .*line 1"):
        load_settings(url=MEMORY)
