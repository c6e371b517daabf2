"""The public surface is a decision, not an accident."""

from __future__ import annotations

from tools import state_machine_diagram as diagram

import redrive


def test_exported_names() -> None:
    names = (
        "App Bulk Cancel Circuit Classification Context Done ErrorCode Fail FailureRule Item RedriveError Retry Snooze"
        " State StopReason Task TaskEvent TaskFields Worker __version__"
    )
    assert sorted(redrive.__all__) == names.split()
    assert all(hasattr(redrive, name) for name in redrive.__all__)


def test_state_machine_document_is_current() -> None:
    from pathlib import Path

    document = Path(__file__).parents[2] / "docs" / "state-machine.md"
    assert document.read_text(encoding="utf-8") == diagram.render()


def test_version_matches_the_package() -> None:
    from importlib.metadata import version

    assert version("redrive") == redrive.__version__
