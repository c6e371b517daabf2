"""``redrive settings``: what is configured, and where it comes from."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from redrive.cli.support import output
from redrive.cli.support.loading import load
from redrive.cli.support.options import AppName, Json
from redrive.features import installed
from redrive.settings import Effective, effective

Changed = Annotated[bool, typer.Option("--changed", help="Only those that are not at their default.")]
VALUE_WIDTH, BESIDE_FEATURES = 30, 20  # beside the longest name on a terminal of 80 columns
NOT_SET = ("None", "[]", "{}", "")


def settings(changed: Changed = False, app: AppName = None, json: Json = False) -> None:
    """Every setting as it is in effect here, with where it comes from: environment, file, given in code, or default;
    also those of the application's features. Secrets are not shown. Needs no store."""
    loaded = load(None, app).app
    found = effective(loaded.settings, loaded.features)
    shown = [one for one in found if not changed or one.source != "default"]
    if json:
        output.emit_list([asdict(one) for one in shown])
    elif not shown:
        output.say("everything is at its default")
    else:
        with_redrive = {feature.name for feature in installed()}  # settings of these are named after them
        brought = any(one.feature and one.feature not in with_redrive for one in shown)
        columns = ["setting", "from", *(["of"] if brought else []), "value"]  # the last one is folded to fit
        output.table(columns, [_row(one, brought) for one in shown], last=BESIDE_FEATURES if brought else VALUE_WIDTH)


def _row(one: Effective, brought: bool) -> tuple[str, ...]:
    value = "(set, not shown)" if one.value is None else "" if one.value in NOT_SET else one.value
    if one.given is not None:
        value = f"{value} ({one.given} is set)"
    return one.name, one.source, *([one.feature or ""] if brought else []), value
