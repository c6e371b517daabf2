"""The examples of docs/transactions.md do what they say."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from pathlib import Path
from types import CodeType, FunctionType, SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from redrive import Context
from tests.integrations.callers import Django, engine_url
from tests.integrations.conftest import Outside

PAGE = Path(__file__).parents[2] / "docs" / "transactions.md"
BLOCKS = re.findall(r"```python no-run\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)


def _title(block: str) -> str:
    return "-".join(re.findall(r"psycopg|asyncpg|sqlite3|sqlalchemy|django|ctx|async with", block)[:3])


def _play(block: str, names: dict[str, Any]) -> None:
    code = compile(block, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert isinstance(code, CodeType)
    answer = FunctionType(code, {"__builtins__": __builtins__, **names})()
    if inspect.iscoroutine(answer):
        asyncio.run(answer)


@pytest.mark.parametrize("block", BLOCKS, ids=_title)
def test_example(block: str, request: pytest.FixtureRequest) -> None:
    outside: Outside = request.getfixturevalue("on_sqlite" if "sqlite3" in block else "on_postgres")
    outside.ask("drop table if exists orders")
    outside.ask("create table orders (id integer primary key)")
    outside.app.declare("SEND_EMAIL")
    names: dict[str, Any] = {"app": outside.app, "DATABASE": outside.address, "Context": Context, "Order": Order}
    if "engine" in block:
        address = engine_url(outside.address, "postgresql+psycopg")
        names |= {"engine": sa.create_engine(address), "async_engine": create_async_engine(address)}
    if "django" in block:
        _play_django(block, names, outside)
    else:
        _play(block, names)
    if "ctx" in block:
        asyncio.run(_enqueue_charge(outside))
        outside.work()
    assert outside.ask("select id from orders") == [(17,)]
    mails = outside.ask(f"select count(*) from {outside.table('v_tasks')} where kind = 'SEND_EMAIL'")
    assert mails == [(1,)]


async def _enqueue_charge(outside: Outside) -> None:
    await outside.app.enqueue("CHARGE", {"order": 17})
    await outside.app.close()


def _play_django(block: str, names: dict[str, Any], outside: Outside) -> None:
    caller = Django(outside.address, outside.app)

    async def scenario(caller: Django) -> None:
        caller.commit()
        create = SimpleNamespace(create=lambda id: caller.run(f"insert into orders values ({id})"))
        _play(block, {**names, "Order": SimpleNamespace(objects=create)})

    caller.play(scenario)
