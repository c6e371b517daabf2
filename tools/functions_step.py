"""Writes the migration step that carries ``functions/*.sql``, so that the step cannot drift from its sources."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

POSTGRES = Path(__file__).parents[1] / "src/redrive/stores/postgres"
# PL/pgSQL looks names up when it runs, SQL when it is created: what a function in SQL calls stands before it.
SOURCES = (
    "wake",
    "checks",
    "ids",
    "add",
    "enqueue",
    "joins",
    "candidates",
    "claim",
    "limits",
    "complete",
    "failure_groups",
    "move",
    "revive",
    "cycle",
    "renew",
    "cancel",
    "promote",
    "tick",
    "series",
    "expired",
    "holds",
    "schedules",
    "ledger",
    "apply_own",
    "fold",
    "partitions",
    "prune",
    "erase",
    "bad_rows",
    "read_only",
    "grants",
)
STEP = "0002_functions"

HEAD = """-- Written by ./dev docs from functions/*.sql: edit those. ./dev check fails when the two differ.

-- Every function that is called from outside carries its own planner settings: plans must not depend on table
-- statistics, which are wrong for a queue most of the time, and sessions behind a transaction pooler cannot keep
-- settings. Functions that only "cycle" calls run under its settings; setting them again would cost a tenth of a claim.
"""
TAIL = """
-- Nothing is open to everyone, not even until the last step.
revoke all on all functions in schema redrive from public;
"""
# By name, because some have several forms. Those of features and of the tables' own step have other names.
DOWN = """-- Written by ./dev docs from functions/*.sql.
do $$
declare
  v_function regprocedure;
begin
  for v_function in
    select p.oid from pg_catalog.pg_proc p where p.pronamespace = 'redrive'::regnamespace and p.proname = any (array[
      {names}])
  loop
    execute format('drop function %s', v_function);
  end loop;
end $$;
"""

_FUNCTION = re.compile(r"^create or replace function redrive\.(\w+)\(", re.MULTILINE)


def source(name: str) -> str:
    return (POSTGRES / "functions" / f"{name}.sql").read_text(encoding="utf-8")


def up() -> str:
    return HEAD + "".join(f"\n-- functions/{name}.sql\n\n{source(name)}" for name in SOURCES) + TAIL


def down() -> str:
    """Drops what ``up`` made."""
    names = dict.fromkeys(name for each in SOURCES for name in _FUNCTION.findall(source(each)))
    return DOWN.format(names=",\n      ".join(f"'{name}'" for name in names))


def halves() -> dict[Path, str]:
    return {POSTGRES / "migrations" / f"{STEP}.{half.__name__}.sql": half() for half in (up, down)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    if given.write:
        for path, text in halves().items():
            path.write_text(text, encoding="utf-8")
    if given.check and (stale := [path.name for path, text in halves().items() if not _holds(path, text)]):
        sys.stderr.write(f"{', '.join(stale)}: not what functions/*.sql say; run ./dev docs\n")
        return 1
    return 0


def _holds(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
