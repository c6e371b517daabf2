"""Writes what changed in ``functions/*.sql`` into the newest migration step, and keeps released steps as they are.

A released step never changes: its digest is in ``tools/released_steps.txt``, and databases have it too. The newest
step that is not released carries each file of functions whose text is another than in the steps before it, below a line
that says so; what stands above that line is written by hand. Its ``down`` has the texts from before.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from pathlib import Path

REDRIVE = Path(__file__).parents[1] / "src/redrive"
POSTGRES = REDRIVE / "stores/postgres"
STEPS = POSTGRES / "migrations"
# PL/pgSQL looks names up when it runs, SQL when it is created: what a function in SQL calls stands before it.
SOURCES = (
    "wake",
    "checks",
    "ids",
    "add",
    "names",
    "enqueue",
    "joins",
    "circuits",
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
    "beat",
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
RELEASED = Path(__file__).with_name("released_steps.txt")

MARK = (
    "-- From here on written by ./dev docs, from functions/*.sql: edit those. ./dev check fails when the two differ.\n"
)
END = "\n-- Up to here written by ./dev docs.\n"
TAIL = """
-- Nothing is open to everyone, not even until the last step.
revoke all on all functions in schema redrive from public;
"""
# By name, because some have several forms.
DROP = """
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
_SIGNATURE = re.compile(r"^create or replace function redrive\.(\w+\(.*?)\blanguage\b", re.MULTILINE | re.DOTALL)
_SECTION = re.compile(r"^-- functions/(\w+)\.sql\n\n", re.MULTILINE)
_STEP = re.compile(r"(\d{4}_\w+)\.up\.sql")


class Refused(Exception):
    """What the author of a step has to do."""


def source(name: str) -> str:
    return (POSTGRES / "functions" / f"{name}.sql").read_text(encoding="utf-8")


def folders() -> dict[str, Path]:
    """Returns where steps are: of the stores, and of each feature by store."""
    found = {store: REDRIVE / "stores" / store / "migrations" for store in ("postgres", "sqlite")}
    of_features = sorted(REDRIVE.glob("*/migrations/*/"))
    return found | {f"{folder.parents[1].name}/{folder.name}": folder for folder in of_features if labels(folder)}


def labels(folder: Path) -> list[str]:
    return sorted(found[1] for path in folder.iterdir() if (found := _STEP.fullmatch(path.name)))


def step_file(folder: Path, label: str, half: str) -> Path:
    return folder / f"{label}.{half}.sql"


def digest(folder: Path, label: str) -> str:
    text = step_file(folder, label, "up").read_bytes() + step_file(folder, label, "down").read_bytes()
    return hashlib.sha256(text).hexdigest()[:16]


def released() -> dict[tuple[str, str], str]:
    """Returns the digest of each released step, by folder and label."""
    rows = (line.split() for line in RELEASED.read_text(encoding="utf-8").splitlines() if line)
    return {(store, label): known for store, label, known in rows}


def changed_after_release() -> list[str]:
    """Returns the released steps that are no longer what was released."""
    found = folders()
    return [
        f"{name} {label}"
        for (name, label), known in released().items()
        if name not in found or label not in labels(found[name]) or digest(found[name], label) != known
    ]


def sections(text: str) -> dict[str, str]:
    """Returns the files of functions that a step carries, by name."""
    parts = _SECTION.split(text.partition(TAIL.strip())[0])
    return {name: body.strip() + "\n" for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def released_functions() -> dict[str, str]:
    """Returns each file of functions as the last released step has it."""
    found: dict[str, str] = {}
    for label in labels(STEPS):
        if ("postgres", label) in released():
            found |= sections(step_file(STEPS, label, "up").read_text(encoding="utf-8"))
    return found


def halves() -> dict[Path, str]:
    """Returns the two halves of the newest open step as they should be; nothing when no function changed."""
    before = released_functions()
    changed = [name for name in SOURCES if before.get(name) != source(name).strip() + "\n"]
    opened = [label for label in labels(STEPS) if ("postgres", label) not in released()]
    if changed and not opened:
        raise Refused(
            f"functions/{changed[0]}.sql is another than in the released steps: write the next step, "
            f"migrations/NNNN_name.up.sql and .down.sql (empty files will do), and run ./dev docs"
        )
    texts = {path: _by_hand(path) for label in opened for path in (step_file(STEPS, label, "up"),)}
    texts |= {step_file(STEPS, label, "down"): _by_hand(step_file(STEPS, label, "down")) for label in opened}
    if changed:
        up, down = (step_file(STEPS, opened[-1], half) for half in ("up", "down"))
        _keep_signatures(changed, before, "".join(texts.values()))
        texts[up] += MARK + "".join(f"\n-- functions/{name}.sql\n\n{source(name)}" for name in changed) + TAIL
        # First what was there before: the tables of this step go when nothing looks at them any more.
        texts[down] = MARK + _undo(changed, before) + texts[down]
    return texts


def _by_hand(path: Path) -> str:
    """Returns what the author wrote: above the line in an ``up``, below what is generated in a ``down``."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if path.name.endswith(".down.sql"):
        return text.partition(END)[2] if END in text else text
    return text.partition(MARK)[0]


def _undo(changed: list[str], before: dict[str, str]) -> str:
    was = {name for text in before.values() for name in _FUNCTION.findall(text)}
    new = [name for each in changed for name in _FUNCTION.findall(source(each)) if name not in was]
    drop = DROP.format(names=",\n      ".join(f"'{name}'" for name in dict.fromkeys(new))) if new else ""
    old = "".join(f"\n-- functions/{name}.sql\n\n{before[name]}" for name in changed if name in before)
    return drop + old + END


def _keep_signatures(changed: list[str], before: dict[str, str], by_hand: str) -> None:
    """Refuses a function whose arguments or results changed: workers of the version before still call the old one."""
    now = {_squeezed(one) for name in SOURCES for one in _SIGNATURE.findall(source(name))}
    for name in changed:
        for one in _SIGNATURE.findall(before.get(name, "")):
            called = one.partition("(")[0]
            if _squeezed(one) not in now and f"drop function redrive.{called}(" not in by_hand:
                raise Refused(
                    f"functions/{name}.sql has no longer the redrive.{called} that was released: workers that "
                    f"run while the database is migrated call it. Give the new one another name and keep the old, or "
                    f"drop it in the step by hand (drop function redrive.{called}(…)) if nobody calls it"
                )


def _squeezed(text: str) -> str:
    return " ".join(text.split())


def release() -> None:
    """Notes each step as released, as it is."""
    found = folders().items()
    rows = [f"{name} {label} {digest(folder, label)}\n" for name, folder in found for label in labels(folder)]
    RELEASED.write_text("".join(rows), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description="The steps that carry functions/*.sql, and those that are released.")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--release", action="store_true", help="from now on no step that is there may change")
    given = parser.parse_args()
    try:
        return _run(write=given.write, release_them=given.release)
    except Refused as error:
        sys.stderr.write(f"{error}\n")
        return 1


def _run(*, write: bool, release_them: bool) -> int:
    if write:
        for path, text in halves().items():
            path.write_text(text, encoding="utf-8")
    if stale := [path.name for path, text in halves().items() if not path.exists() or path.read_text() != text]:
        raise Refused(f"{', '.join(stale)}: not what functions/*.sql say; run ./dev docs")
    if changed := changed_after_release():
        raise Refused(f"{', '.join(changed)}: a released step was changed; put it back and write a new one")
    if release_them:
        release()
    return 0


if __name__ == "__main__":
    sys.exit(main())
