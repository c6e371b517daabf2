"""``redrive cancel``."""

from __future__ import annotations

from redrive.cli.support.by_id import report
from redrive.cli.support.options import AppName, By, Ids, Json, Reason, Url
from redrive.cli.support.session import operate, store_named
from redrive.ops.actions import Result
from redrive.ops.operator import Operator


def cancel(
    ids: Ids, reason: Reason = None, by: By = None, url: Url = None, app: AppName = None, json: Json = False
) -> None:
    """Cancel waiting tasks now, and ask running ones to stop."""

    async def act(own: Operator) -> Result:
        return await own.tasks.cancel(await own.tasks.meant(ids), reason)

    report(operate(url, app, act, by=by, ids=ids), "cancelled", json, store_named(url, app))
