"""While the store cannot be used, where it is is told to those who may act, and to nobody else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from redrive import App
from redrive.errors import ConfigError, RedriveError, StoreUnavailable, StoreUnusable
from redrive.ops import access
from redrive.ops.access import Role, error_text_for
from tests.api.conftest import served

pytestmark = pytest.mark.anyio
WHERE = "PostgreSQL database 'night' at 10.0.0.7:5432"
MADE_UP = {"authorization": f"Bearer rdt_{'0' * 12}_{'a' * 43}"}


@pytest.mark.parametrize("error", [StoreUnavailable, StoreUnusable, ConfigError])
def test_only_those_who_may_act_read_where_a_store_is(error: type[RedriveError]) -> None:
    happened = error(f"{WHERE} is away", hint=f"look at {WHERE}")
    for role in (Role.OPERATOR, Role.ADMIN):
        assert error_text_for(happened, role) == (happened.message, happened.hint)
    for role in (None, Role.VIEWER):
        assert "10.0.0.7" not in " ".join(map(str, error_text_for(happened, role)))


@pytest.mark.parametrize("path", ["/api/tasks", "/metrics"])
async def test_strangers_do_not_read_where_it_is(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable(f"{WHERE} is away", hint=f"look at {WHERE}")

    app = App(f"sqlite:///{tmp_path}/outage.db")
    async with served(app) as client:
        monkeypatch.setattr(app.access, "caller", away)
        monkeypatch.setattr(app.access, "has_tokens", away)
        for headers in (MADE_UP, {}):
            answer = await client.get(path, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (503, "STORE_UNAVAILABLE")
            assert "10.0.0.7" not in answer.text and "night" not in answer.text


async def test_an_operator_does_and_a_viewer_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable(f"{WHERE} is away")

    app = App(f"sqlite:///{tmp_path}/outage.db")
    store = await app.store()
    tokens = {role: await access.create(store, role.label, role, actor="cli") for role in (Role.VIEWER, Role.OPERATOR)}
    async with served(app) as client:
        monkeypatch.setattr(store, "find", away)
        for role, token in tokens.items():
            answer = await client.get("/api/tasks", headers={"authorization": f"Bearer {token.secret}"})
            assert answer.status_code == 503
            assert ("10.0.0.7" in answer.text) is (role is Role.OPERATOR)
