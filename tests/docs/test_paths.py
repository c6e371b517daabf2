"""What the documents say about the code is there: files by their paths, and quoted code word by word."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from redrive import State

ROOT = Path(__file__).parents[2]
MAPS = [ROOT / "docs" / name for name in ("architecture.md", "features.md", "internals.md")]
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))
FULL = re.compile(r"\b(?:src|kit|tests|docs|bench|storm|tools)/[\w./*-]*[\w*/]")
# Written from the package on: `kernel/machine.py`, `stores/*/bad_rows.py`.
SHORT = re.compile(r"`((?:[a-z_*]+/)*[a-z_0-9]+\.(?:py|sql))`")
QUOTED = re.compile(r"^```(?:python|sql)[^\n]*\n(?:#|--) ((?:src|kit)/\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def exists(path: str) -> bool:
    return any(True for _ in ROOT.glob(path.rstrip("/")))


@pytest.mark.parametrize("document", [*MAPS, *DECISIONS], ids=lambda d: d.name)
def test_every_path_exists(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    named = set(FULL.findall(text)) | {_in_full(path) for path in SHORT.findall(text)}
    assert named or document in DECISIONS
    assert sorted(path for path in named if not exists(path)) == []


def test_every_decision_is_in_the_list() -> None:
    listed = set(re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / "docs/decisions/README.md").read_text(encoding="utf-8")))
    assert listed == {page.name for page in DECISIONS} - {"README.md"}


def _in_full(path: str) -> str:
    if path.startswith(("src/", "kit/", "tests/", "bench/", "storm/", "tools/")):
        return path
    # A name alone goes with the folder named before it; "migrations" and "functions" are those of a store.
    inside = "/" not in path or path.startswith(("migrations/", "functions/"))
    return f"src/redrive/**/{path}" if inside else f"src/redrive/{path}"


def test_quoted_code_is_that_of_the_file() -> None:
    quotes = [found for document in MAPS for found in QUOTED.findall(document.read_text(encoding="utf-8"))]
    assert len(quotes) >= 4
    changed = [path for path, code in quotes if code.rstrip() not in (ROOT / path).read_text(encoding="utf-8")]
    assert changed == []


def test_the_picture_has_the_layers_of_the_checked_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    [layers] = [contract["layers"] for contract in contracts if contract["name"] == "Imports run one way"]
    picture = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").split("```")[1]
    drawn = [re.sub(r"  .*", "", line.strip()).replace("│", "|") for line in picture.splitlines()]
    assert [name for name in drawn if name not in ("", "|")] == layers


def test_sql_that_lists_all_states_is_named_where_one_adds_a_state() -> None:
    row = next(line for line in (ROOT / "docs/architecture.md").read_text().splitlines() if "**task state**" in line)
    for file in sorted((ROOT / "src/redrive/stores").rglob("*.sql")):
        lines = file.read_text().splitlines()
        near = (set(re.findall(r"[a-z]+", " ".join(lines[at : at + 4]))) for at in range(len(lines)))
        if any(len(words & set(State)) >= 6 for words in near):
            assert f"`{file.relative_to(ROOT)}`" in row, file


def test_a_term_has_one_entry_in_the_glossary() -> None:
    rows = re.findall(r"^\| ([^|]+) \|", (ROOT / "docs/glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    terms = [term.strip() for row in rows if row != "term" for term in row.split(",")]
    assert sorted({term for term in terms if terms.count(term) > 1}) == []
