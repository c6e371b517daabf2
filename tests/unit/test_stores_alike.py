"""The stores are built alike: whoever knows one finds his way in the other."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import redrive.errors
import redrive.stores
import redrive.worker
from redrive.errors import ConfigError
from redrive.kernel.ports.sql import NoSql
from redrive.kernel.ports.store import WorkerStore

STORES = Path(redrive.stores.__file__).parent
VERBS = """
    apply enqueue settle writes tick upkeep bad_rows transaction listen reads codec diagnose errors migrate url
    store
"""
ERRORS = {name for name, kind in vars(redrive.errors).items() if isinstance(kind, type)}


def test_a_verb_is_in_the_same_file_of_both() -> None:
    files = [STORES / store / f"{verb}.py" for verb in VERBS.split() for store in ("sqlite", "postgres")]
    assert [file for file in files if not file.exists()] == []


def messages(store: str) -> set[str]:
    """The words of every error that is made in a store's folder."""
    made = (
        call
        for path in (STORES / store).glob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in ERRORS
    )
    texts = (part.value for call in made for part in ast.walk(call) if isinstance(part, ast.Constant))
    return {text.strip(" :") for text in texts if isinstance(text, str) and " " in text.strip()}


def test_what_both_say_is_written_once() -> None:
    """In ``stores/refusals.py``: else one of them is corrected some day, and the other is not."""
    assert messages("sqlite") and messages("postgres")
    assert messages("sqlite") & messages("postgres") == set()


def test_workers_ask_nothing_but_their_part_of_the_port() -> None:
    """A store that has that part can run tasks; the rest is for people who look at them."""
    asked = (
        node
        for path in Path(redrive.worker.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).split(".")[-1] in ("store", "_store")
    )
    called = {node.attr for node in asked}
    known = {name for part in WorkerStore.__mro__ for name in vars(part)}
    assert {"cycle", "tick", "beat"} <= called and called - known == set()


async def test_a_store_without_sql_names_those_that_have_it() -> None:
    with pytest.raises(ConfigError, match=r"the feature 'orders' needs .* redis://here does not") as refused:
        await NoSql("redis://here").feature_rows("orders", "late")
    assert refused.value.hint and "sqlite:///" in refused.value.hint and "postgresql://" in refused.value.hint
