"""``redrive tokens``: who may call the HTTP API."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from redrive.cli.support import output
from redrive.cli.support.options import AppName, By, Create, Json, Reason, Url, list_command
from redrive.cli.support.session import operate
from redrive.kernel.records import Record
from redrive.ops import access

tokens_cli = typer.Typer(help="Access tokens of the HTTP API: list, create, revoke.", invoke_without_command=True)


@tokens_cli.callback()
def list_tokens(context: typer.Context, url: Url = None, app: AppName = None, json: Json = False) -> None:
    """Tokens, without their secrets."""
    if context.invoked_subcommand is not None:
        return
    found = operate(url, app, lambda own: own.tokens.list())
    if json:
        output.emit_list([_document(record) for record in found])
        return
    if not found:
        output.say("there are no tokens: the API serves this machine only, and lets everybody in")
        return
    output.table(
        ["id", "name", "role", "state", "#made", "by", "expires"],
        [
            (
                r.id,
                r.body["name"],
                r.body["role"],
                r.state,
                output.ago(r.created_at),
                r.body["created_by"],
                output.when(access.expires_at(r)) or "never",
            )
            for r in found
        ],
    )


list_command(tokens_cli, list_tokens)


@tokens_cli.command("create")
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who acts, in the audit log.")],
    role: Annotated[str, typer.Option("--role", metavar="ROLE", help="viewer, operator or admin.")] = "operator",
    days: Annotated[float | None, typer.Option("--days", metavar="N", help="Valid for so long; else for good.")] = None,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    create: Create = False,
    json: Json = False,
) -> None:
    """Make a token. Its secret is shown once."""
    wanted = access.parse_role(role)
    made = operate(url, app, lambda own: own.tokens.create(name, wanted, days=days), by=by, create=create)
    if json:
        output.emit({**_document(made.record), "token": made.secret})
        return
    output.say(made.secret)
    typer.echo(f"{name} ({wanted.label}); it is shown only now. Send it as: Authorization: Bearer …", err=True)


@tokens_cli.command("revoke")
def revoke(
    token: Annotated[str, typer.Argument(metavar="ID", help="As the list gives it.")],
    reason: Reason = None,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Make a token worthless, at once and for good."""
    record = operate(url, app, lambda own: own.tokens.revoke(token, reason), by=by)
    if json:
        output.emit(_document(record))
    else:
        output.say(f"token {record.id} of {record.body['name']} is revoked")


def _document(record: Record) -> dict[str, Any]:
    shown = {name: value for name, value in record.body.items() if name != "hash"}
    return {
        "id": record.id,
        "state": record.state,
        "created_at": record.created_at,
        "expires_at": access.expires_at(record),
        **shown,
    }
