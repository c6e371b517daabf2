"""Refuses what the oldest Python that we name does not have, and type checkers think it has.

They know versions by their first two numbers. What came with a later 3.11.x is in their stubs of 3.11, in the Python of
most contributors, and not in Debian 12's 3.11.2.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "kit", "tests", "tools", "bench", "storm")
# By the name of what is called: keywords that older ones refuse, and the version that brought them.
KEYWORDS = {
    ("extract", "filter"): "3.11.4",
    ("extractall", "filter"): "3.11.4",
    ("unpack_archive", "filter"): "3.11.4",
    ("getaddresses", "strict"): "3.11.10",
    ("parseaddr", "strict"): "3.11.10",
}
ATTRIBUTES = {
    "data_filter": "3.11.4",
    "tar_filter": "3.11.4",
    "fully_trusted_filter": "3.11.4",
    "extraction_filter": "3.11.4",
    "FilterError": "3.11.4",
    "SetReparseDeferralEnabled": "3.11.9",
    "GetReparseDeferralEnabled": "3.11.9",
    "verify_generated_headers": "3.11.10",
}
_WORDS = tuple(name.encode() for name in {called for called, _ in KEYWORDS} | set(ATTRIBUTES))


def newer_things(source: bytes) -> Iterator[tuple[int, str, str]]:
    """Yields the line, the name and the version of each thing that Python 3.11.0 does not have."""
    if not any(word in source for word in _WORDS):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            for keyword in node.keywords:
                if version := KEYWORDS.get((called, keyword.arg or "")):
                    yield node.lineno, f"{called}({keyword.arg}=…)", version
        elif isinstance(node, ast.Attribute) and node.attr in ATTRIBUTES:
            yield node.lineno, node.attr, ATTRIBUTES[node.attr]


def main() -> int:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name} came with Python {version}; the oldest that we name is 3.11.0"
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, name, version in newer_things(path.read_bytes())
    ]
    sys.stderr.write("".join(f"{line}\n" for line in found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
