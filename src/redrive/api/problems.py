"""Errors as RFC 9457 problem documents with a machine code."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import Request
from fastapi.responses import JSONResponse

from redrive.errors import (
    IdempotencyConflict,
    InvalidInput,
    InvalidTransition,
    RedriveError,
    StoreUnavailable,
    StoreUnusable,
    TaskNotFound,
)

_STATUS: dict[type[RedriveError], HTTPStatus] = {
    TaskNotFound: HTTPStatus.NOT_FOUND,
    IdempotencyConflict: HTTPStatus.CONFLICT,
    InvalidTransition: HTTPStatus.CONFLICT,
    InvalidInput: HTTPStatus.UNPROCESSABLE_ENTITY,
    StoreUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    StoreUnusable: HTTPStatus.SERVICE_UNAVAILABLE,
}


async def on_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RedriveError)
    found = (status for kind, status in _STATUS.items() if isinstance(error, kind))
    status = next(found, HTTPStatus.INTERNAL_SERVER_ERROR)
    return problem(status, error.code, error.message, error.hint)


def problem(status: HTTPStatus, code: str, detail: str, hint: str | None = None) -> JSONResponse:
    body = {"type": "about:blank", "title": status.phrase, "status": status.value, "code": code, "detail": detail}
    if hint:
        body["hint"] = hint
    return JSONResponse(body, status.value, media_type="application/problem+json")
