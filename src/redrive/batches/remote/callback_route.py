"""``POST /api/batches/callback/TOKEN``: a provider says that a job has ended. The address itself is the proof."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from redrive.api.access import TheApp, wrong_tokens
from redrive.batches.remote.callbacks import ProviderCallbacks
from redrive.batches.remote.kinds import CALLBACK_PATH
from redrive.feature.api import PROBLEMS
from redrive.remote.callbacks import CallbackRefused

router = APIRouter(prefix=f"/{CALLBACK_PATH}", tags=["remote batches"], responses=PROBLEMS)


@router.post("/{token}", status_code=204)
async def call_back(
    token: str, request: Request, app: TheApp, connection: Annotated[str | None, Query()] = None
) -> Response:
    """Have the job of an item looked at now. What the body says is not read; a repeated call changes nothing."""
    try:
        await app.of(ProviderCallbacks).take(token, connection)
    except CallbackRefused:
        wrong_tokens(request).failed(request)
        raise
    return Response(status_code=204)
