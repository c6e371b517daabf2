"""Which environment variables ``redrive deploy`` says that programs need."""

from __future__ import annotations

import pytest

from redrive import App
from redrive.ops.deploy.programs import secrets_of


def test_secrets_of_features_that_are_set_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENTERPRISE_WEBHOOK_SECRET", "whsec_" + "QUJD" * 8)
    monkeypatch.setenv("INTERNAL_WORKER_SECRET", "a-secret-of-the-worker-0123456789")
    app = App("sqlite:///of-a-test.db")
    assert secrets_of(app.settings, app.features) == [
        "REDRIVE_URL",
        "INTERNAL_WORKER_SECRET",
        "ENTERPRISE_WEBHOOK_SECRET",
    ]


def test_secrets_that_are_not_set_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ENTERPRISE_WEBHOOK_SECRET", "INTERNAL_WORKER_SECRET"):
        monkeypatch.delenv(name, raising=False)
    app = App("sqlite:///of-a-test.db")
    assert secrets_of(app.settings, app.features) == ["REDRIVE_URL"]
