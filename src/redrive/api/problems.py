"""Returns errors as RFC 9457 problem documents with a machine code."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import Request
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from redrive.api import middleware as headers
from redrive.api.models import Problem
from redrive.errors import PayloadInvalid, RedriveError
from redrive.kernel.payload import LONG_NUMBER, LONG_NUMBER_HINT, digits_refused
from redrive.ops.access import error_text_for

_MEANINGS = {
    400: "Not readable as JSON",
    401: "No token, or a wrong one",
    403: "The token's role does not allow it",
    404: "There is no such thing",
    409: "Not possible in its present state",
    413: "The body is too large",
    422: "A value is wrong; nothing was changed",
    429: "Too many wrong tokens",
    503: "The store cannot be reached",
}
# For every route: what may come instead of the answer.
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"description": text, "content": {"application/problem+json": {"schema": Problem.model_json_schema()}}}
    for status, text in _MEANINGS.items()
}


async def on_error(request: Request, error: Exception) -> JSONResponse:
    """Returns an error of redrive's own, in words for whoever asks; before that is known, in those for strangers."""
    assert isinstance(error, RedriveError)
    status, caller = HTTPStatus(error.status), getattr(request.state, "caller", None)
    message, hint = error_text_for(error, None if caller is None else caller.role)
    response = problem(status, error.code, message, hint)
    if status is HTTPStatus.UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = "Bearer"
    if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        response.headers["Retry-After"] = "60" if status is HTTPStatus.TOO_MANY_REQUESTS else "2"
    return response


async def on_invalid(_: Request, error: Exception) -> JSONResponse:
    """Returns what is wrong with each value, without repeating the values themselves."""
    assert isinstance(error, RequestValidationError)
    found = [{"in": _place(e), "problem": _worded(e)} for e in error.errors()]
    said = "; ".join(f"{'.'.join(e['in'][1:]) or e['in'][0]}: {e['problem']}" for e in found[:5])
    unreadable = any(e["type"] == "json_invalid" for e in error.errors())
    status = HTTPStatus.BAD_REQUEST if unreadable else HTTPStatus.UNPROCESSABLE_ENTITY
    return problem(status, "INPUT_INVALID", said, errors=jsonable_encoder(found))


def _place(error: dict[str, Any]) -> list[str]:
    return ["body"] if error["type"] == "json_invalid" else [str(part) for part in error["loc"]]


def _worded(error: dict[str, Any]) -> str:
    match error["type"]:
        case "json_invalid":
            return f"is not JSON: {error['ctx']['error']} at character {error['loc'][-1]}"
        case "uuid_parsing":
            return "is not an id; ids look like 0197f0c2-8d1e-7c3a-9b1f-2f6f0c9d1a2b"
        case "extra_forbidden":
            return "is not known here"
        case "missing":
            return "is missing"
    return str(error["msg"])


async def on_http(_: Request, error: Exception) -> JSONResponse:
    """Returns an error of the framework: an unknown path, a wrong method."""
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    code, hint, said = getattr(error, "code", status.name), getattr(error, "hint", None), str(error.detail)
    if digits_refused(error.__cause__):  # FastAPI only says that it could not read the body
        status, code = HTTPStatus.UNPROCESSABLE_ENTITY, PayloadInvalid.code
        hint, said = LONG_NUMBER_HINT, f"the body {LONG_NUMBER}"
    response = problem(status, code, said, hint)
    response.headers.update(error.headers or {})
    return response


async def on_crash(request: Request, _: Exception) -> JSONResponse:
    """Returns a mistake of ours: the log has it, the caller learns no more than that. Outside of all middleware, so it
    brings its headers along."""
    hint = "the server's log says more"
    answer = problem(HTTPStatus.INTERNAL_SERVER_ERROR, "INTERNAL_ERROR", "something went wrong in the server", hint)
    answer.headers.update(dict(headers.for_path(request.url.path)))
    return answer


def problem(status: HTTPStatus, code: str, detail: str, hint: str | None = None, **more: Any) -> JSONResponse:
    """Returns a problem document as a response."""
    body = {"type": "about:blank", "title": status.phrase, "status": status.value, "code": code, "detail": detail}
    if hint:
        body["hint"] = hint
    return JSONResponse(body | more, status.value, media_type="application/problem+json")
