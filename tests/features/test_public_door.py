"""Features are written with public names: ``redrive.feature``, and what that page of the documents says about it."""

from __future__ import annotations

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

import redrive_kit
from redrive.feature import (
    AlertRule,
    Audit,
    Belongs,
    Dependency,
    Duty,
    Effects,
    Feature,
    Finding,
    Landed,
    NewJoin,
    NewTask,
    PlannedAction,
    Posting,
    Rows,
)

ORDERS = Path(redrive_kit.__file__).parent / "examples/orders"
DOORS = (
    "redrive.feature",
    "redrive.feature.api",
    "redrive.feature.cli",
    "redrive.feature.console",
    "redrive.feature.metrics",
)
PAGE = Path(__file__).parents[2] / "docs/features.md"


def _imports(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return found | {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}


@pytest.mark.parametrize("path", sorted(ORDERS.glob("*.py")), ids=lambda path: path.name)
def test_the_example_imports_public_names_only(path: Path) -> None:
    own = {name for name in _imports(path) if name.split(".")[0] == "redrive"}
    allowed = {name for name in own if name in ("redrive", *DOORS)}
    assert own == allowed


@pytest.mark.parametrize("door", DOORS)
def test_what_a_door_offers_is_there(door: str) -> None:
    module = import_module(door)
    assert list(module.__all__) == sorted(
        module.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name)
    )
    assert all(hasattr(module, name) for name in module.__all__)


KINDS = (
    *(Feature, Effects, Landed, Rows, NewJoin, Posting, Duty, Finding, Audit, NewTask, Dependency),
    *(AlertRule, Belongs, PlannedAction),
)


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_lists_every_field(kind: type) -> None:
    """So that a feature can be written from the page."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(rf"^{kind.__name__}\((.*?)^\S", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"{kind.__name__}(…) is not on the page"
    assert set(inspect.signature(kind).parameters) <= set(re.findall(r"(\w+):", found[1]))
