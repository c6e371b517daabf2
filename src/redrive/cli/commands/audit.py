"""``redrive audit``: who did what; exported, pruned."""

from __future__ import annotations

import json as jsonlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, TextIO

import typer

from redrive.cli.support import output
from redrive.cli.support.connections import look_at, on_chosen, refuse_all, refuse_place
from redrive.cli.support.filters import of_audit
from redrive.cli.support.loading import load
from redrive.cli.support.options import AppName, By, DryRun, Json, Url, Yes, confirm, list_command
from redrive.cli.support.session import operate
from redrive.errors import InvalidInput
from redrive.files import write_private
from redrive.kernel.audit import AuditFilter
from redrive.kernel.wording import counted
from redrive.ops import audit, audit_verify, views
from redrive.ops.access import Role
from redrive.ops.audit_archive import archive_at
from redrive.ops.audit_rows import PRUNE_SUMMARY, done_of_matched, values_of
from redrive.ops.operator import Operator
from redrive.ops.views import Sight
from redrive.settings import Settings

LOOKED_AT = 200  # rows, for what other actions there are
audit_cli = typer.Typer(help="Who did what: list, export, prune, verify, search.", invoke_without_command=True)
ArchiveFolder = Annotated[
    str | None,
    typer.Option("--archive", metavar="PLACE", help="A folder or s3://bucket/prefix (else TASK_AUDIT_ARCHIVE)."),
]


@audit_cli.callback()
@of_audit
def list_audit(
    context: typer.Context,
    which: AuditFilter,
    page: Annotated[int, typer.Option("--page", metavar="N", min=1, help="Which page.")] = 1,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=500, help="Rows of a page.")] = 50,
    before: Annotated[int | None, typer.Option("--before", metavar="N", min=1, help="Go on from a next.")] = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """What operators did, newest first."""
    if context.invoked_subcommand is not None:
        return

    async def look(own: Operator) -> tuple[audit.Page, list[str]]:
        rows = await own.audit.query(which, page=page, page_size=limit, before=before)
        misses = not rows.rows and which.action is not None
        others = (await own.audit.query(replace(which, action=None), page_size=LOOKED_AT)).rows if misses else []
        return rows, sorted({row.action for row in others})

    refuse_place(url, app, before=before, page=page > 1)
    looked = look_at(url, app, look)
    found = looked.latest(lambda answer: answer[0].rows, lambda row: row.at, limit)
    pages = [answer for answer, _ in looked.found.values()]
    more = any(one.more for one in pages) or sum(len(one.rows) for one in pages) > len(found)
    if json:
        items = [looked.document(name, views.audit_row(row, Sight(Role.ADMIN))) for name, row in found]
        rest = None if looked.everywhere else pages[0].next_before
        output.emit_list(items, rest, page=page, more=more, **looked.missing)
        return
    if not found:
        # A name that is misspelt, or that of one action where many were done at once, must not read as "nobody did it".
        actions = sorted({action for _, others in looked.found.values() for action in others})
        instead = f"; the latest with the same filters are: {', '.join(actions)}" if actions else ""
        output.say(f"no such audit rows{looked.without}{instead}")
        return
    rows = [
        (
            output.when(row.at),
            *looked.cell(name),
            row.actor,
            row.action,
            row.task_id or row.target or row.bulk_id or "",
            output.shorten("; ".join(filter(None, [done_of_matched(row.after), row.reason])), 200),
        )
        for name, row in found
    ]
    output.table(["when", *looked.column, "by", "action", "about", "reason"], rows)
    if more and looked.everywhere:
        output.say("", "there is more of each: --connection NAME, with --page 2")
    elif more:
        output.say("", f"there is more: --page {page + 1}")


list_command(audit_cli, list_audit)


@audit_cli.command("export")
@of_audit
def export(
    which: AuditFilter,
    to: Annotated[str, typer.Argument(metavar="FILE", help="Where to; - is standard output.")] = "-",
    form: Annotated[str | None, typer.Option("--format", metavar="F", help="csv, json, jsonl; else by name.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is there.")] = False,
    url: Url = None,
    app: AppName = None,
) -> None:
    """All that matches, oldest first, as CSV, JSON or JSON lines; of any size. Of one connection: where there are
    several, --connection NAME says which."""
    chosen = form or _format(to)

    async def write(own: Operator) -> None:
        with _opened(to, force) as out, output.progress_bar("bytes") as written:
            async for piece in own.audit.export(which, chosen):
                out.write(output.clean(piece, lines=True) if out.isatty() else piece)
                if not out.isatty():
                    written(len(piece))

    refuse_all(url, app)
    operate(url, app, write)
    if to != "-":
        typer.echo(f"{to}: {Path(to).stat().st_size} bytes of {chosen}", err=True)


def _format(to: str) -> str:
    ending = Path(to).suffix.lstrip(".")
    if to != "-" and ending not in audit.EXPORT_FORMATS:
        raise InvalidInput(
            f"{to} does not say which format", hint=f"--format, one of: {', '.join(audit.EXPORT_FORMATS)}"
        )
    return "jsonl" if to == "-" else ending


@contextmanager
def _opened(to: str, force: bool) -> Iterator[TextIO]:
    """A file is there when it is complete: an export that breaks off leaves what was there before."""
    if to == "-":
        yield sys.stdout
        return
    path, draft = Path(to), Path(f"{to}.part")
    if path.exists() and not force:
        raise InvalidInput(f"{to} is there already", hint="choose another name, or --force")
    try:
        with write_private(draft) as out:
            yield out
        draft.replace(path)
    except OSError as error:
        raise InvalidInput(f"{to} cannot be written: {error.strerror or error}") from None
    finally:
        draft.unlink(missing_ok=True)


@audit_cli.command("prune")
@of_audit
def prune(
    which: AuditFilter,
    days: Annotated[float, typer.Option("--older-than-days", metavar="N", help="Rows older than so many days.")],
    dry_run: DryRun = False,
    yes: Yes = False,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Remove old rows; a TASK_AUDIT_PRUNE_SUMMARY says who did, how many and which. Of one connection: where there are
    several, --connection NAME says which."""
    refuse_all(url, app)
    told = operate(url, app, lambda own: own.audit.prune(which, older_than_days=days, dry_run=True), by=by)
    if not dry_run and told.matched:
        confirm(f"remove {told.matched} audit rows older than {days:g} days?", yes)

        with output.progress_bar("removed", told.matched) as removed:
            told = operate(url, app, lambda own: own.audit.prune(which, older_than_days=days, progress=removed), by=by)
    if json:
        output.emit(asdict(told))
    elif not told.matched:
        output.say(f"no audit row is older than {days:g} days")
    elif told.dry_run:
        output.say(f"{told.matched} rows would be removed")
    else:
        output.say(f"{told.removed} rows removed")


@audit_cli.command("verify")
def verify(
    archive: ArchiveFolder = None,
    head: Annotated[str | None, typer.Option("--head", metavar="HASH", help="A head that was written down.")] = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Look for tampering: rows changed, removed or slipped in since they were sealed. Exit code 1 when there is any."""
    refuse_place(url, app, head=head, archive=archive)

    def act() -> None:
        with output.progress_bar("rows") as checked:
            found = operate(url, app, lambda own: own.audit.verify(archive, head, checked))
        if json:
            output.emit(asdict(found))
        else:
            _say_verdict(found, load(url, app).app.settings, archive)
        if found.problems:
            raise typer.Exit(1)

    on_chosen(url, app, act, looks=True)


def _say_verdict(found: audit_verify.Verdict, settings: Settings, archive: str | None) -> None:
    output.say(*found.problems)
    output.say(*_removals(found, settings.audit_ttl_days))
    output.say(
        f"{counted(found.rows, 'row')} in {counted(found.seals, 'seal')}, {_unsealed(found)};"
        f" {_pruned(found, archived=bool(archive or settings.audit_archive))}, {found.erased} erased",
        f"head: {found.head}",
        "no tampering was found" if not found.problems else counted(len(found.problems), "problem"),
    )


def _unsealed(found: audit_verify.Verdict) -> str:
    since = found.unsealed_since
    late = "" if since is None else f" (the oldest of {output.when(since)}: is a worker running?)"
    return f"{found.unsealed} not sealed yet{late}"


def _pruned(found: audit_verify.Verdict, *, archived: bool) -> str:
    """How many rows were pruned in all: the sum of what the lines before say, as far as the log still has them."""
    notes = [f"{found.archived} in the archive"] if archived and found.pruned else []
    notes += [f"{found.pruned_unsealed} before they were sealed"] if found.pruned_unsealed else []
    return f"{found.pruned + found.pruned_unsealed} pruned" + (f" ({', '.join(notes)})" if notes else "")


def _removals(found: audit_verify.Verdict, retention: float) -> list[str]:
    """Each removal by a person, and the sum of what retention did."""
    lines = []
    for removal in sorted(found.removals, key=lambda removal: removal.at):
        if removal.actor == audit.RETENTION_ACTOR and not audit_verify.younger_than(removal, retention):
            continue
        rows = counted(removal.rows, "row")
        what = f"pruned {rows}" if removal.action == PRUNE_SUMMARY else f"erased personal data, {rows} of this log"
        text = f"{output.when(removal.at)} {removal.actor} {what}"
        if removal.youngest is not None:
            text += f", the youngest {(removal.at - removal.youngest).total_seconds() / 86_400:.1f} days old"
        if audit_verify.younger_than(removal, retention):
            text += f": that is less than the {retention:g} days that are set now"
        lines.append(text)
    kept = [removal for removal in found.removals if removal.actor == audit.RETENTION_ACTOR]
    if kept:
        lines.append(
            f"{audit.RETENTION_ACTOR} pruned {counted(sum(removal.rows for removal in kept), 'row')}"
            f" in {counted(len(kept), 'round')}"
        )
    return lines


@audit_cli.command("search")
@of_audit
def search(
    which: AuditFilter,
    archive: ArchiveFolder = None,
    url: Url = None,
    app: AppName = None,
) -> None:
    """Rows that were pruned, from the archive, as JSON lines, oldest first."""
    found = archive_at(archive or load(url, app).app.settings.audit_archive)
    if found is None:
        raise InvalidInput("no archive is named", hint="--archive FOLDER or s3://bucket/prefix, or TASK_AUDIT_ARCHIVE")
    for row in found.read(which):
        sys.stdout.write(jsonlib.dumps(values_of(row)) + "\n")
