"""Marks of a failure: status, errno, SQLSTATE, code and the like, and which of them may be shown to everybody.

An attribute called ``code`` may hold anything, a voucher's code too. It is shown if it is known not to be data: it
stands in a table, in the source that the exception came through, or in the class of the exception."""

from __future__ import annotations

import errno
import re
import socket
import sqlite3
import ssl
from collections.abc import Collection, Iterable
from enum import Enum

from redrive.kernel import evidence, frames
from redrive.kernel.classify import CODES
from redrive.kernel.error_words import ERROR_WORDS
from redrive.kernel.evidence import Marks, look
from redrive.kernel.message_template import HOLE, template
from redrive.kernel.model_names import refused
from redrive.kernel.summary import Payload

_IN_TEXT = [
    ("status", re.compile(r"\b(?:HTTP(?:/\d(?:\.\d)?)?|status(?:[ _-]?code)?)\W{0,3}([1-5]\d\d)\b", re.I)),
    (
        "status",
        re.compile(
            r"\b([45]\d\d) (?:Bad|Unauth|Payment|Forbid|Not|Method|Proxy|Request|Conflict|Gone|Too|"
            r"Unproc|Internal|Service|Gateway)"
        ),
    ),
    ("errno", re.compile(r"\[(?:Errno|WinError) (-?\d{1,6})\]")),
    ("sqlstate", re.compile(r"\bSQLSTATE\W{0,3}([0-9A-Z]{5})\b")),
    ("exit", re.compile(r"\bexit (?:status|code) (-?\d{1,5})\b")),
    ("ssl", re.compile(r"\[SSL: ([A-Z0-9_]{3,60})\]")),
]
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_WORD = re.compile(r"[^\W\d_]+")
# The classes of the standard and of PostgreSQL, then a number.
_SQLSTATE = re.compile(r"(?:0[0-9ABFLPZ]|2[0-8BDF]|3[3-9BDF]|4[024]|5[34578]|72|F0|HV|P0|XX)[0-9P][0-9][0-9A-Z]")
_DNS = {value for name, value in vars(socket).items() if name.startswith("EAI_")}
_SQLITE_CODE = re.compile(r"(SQLITE_[A-Z_]{2,60})(?:\.[a-z_]{4,40})?")

# Codes of well-known servers: names of what went wrong, never anybody's data.
_GRPC = """
    OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED
    RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS
    UNAUTHENTICATED
"""
_REDIS = """
    ERR WRONGTYPE WRONGPASS NOAUTH NOPERM NOSCRIPT NOGROUP NOREPLICAS BUSY BUSYGROUP BUSYKEY LOADING MASTERDOWN
    MISCONF MOVED ASK CLUSTERDOWN CROSSSLOT TRYAGAIN READONLY EXECABORT OOM UNBLOCKED UNKILLABLE NOTBUSY INVALIDOBJ
"""
_AWS = """
    AccessDenied AccessDeniedException NoSuchKey NoSuchBucket NoSuchUpload NoSuchEntity NotFound BucketAlreadyExists
    BucketNotEmpty InvalidAccessKeyId SignatureDoesNotMatch PreconditionFailed EntityTooLarge InvalidRange
    InternalError InternalFailure InternalServerError ServiceUnavailable ServiceUnavailableException
    ValidationException ValidationError ConditionalCheckFailedException ResourceNotFoundException
    ResourceInUseException InvalidParameterValue InvalidParameterException UnrecognizedClientException
    InvalidClientTokenId InvalidSignatureException MissingParameter OptInRequired UnauthorizedOperation
    ItemCollectionSizeLimitExceededException
"""
# OpenAI and those that speak like it, Stripe
_CLIENTS = """
    rate_limit_exceeded insufficient_quota invalid_api_key model_not_found context_length_exceeded
    content_policy_violation invalid_request_error server_error invalid_value missing_required_parameter
    string_above_max_length unsupported_parameter billing_hard_limit_reached account_deactivated card_declined
    expired_card incorrect_cvc incorrect_number insufficient_funds processing_error authentication_required
    resource_missing rate_limit lock_timeout idempotency_key_in_use amount_too_large amount_too_small
    parameter_missing parameter_invalid_empty
"""
_TLS = """
    ssl tls sslv tlsv alert handshake cipher ciphers certificate cert verify peer hello shake mac record ca eof
    version protocol renegotiation legacy extension dh key small weak md dhe
"""

_KNOWN_CODES = frozenset([*CODES, *_GRPC.split(), *_REDIS.split(), *_AWS.split(), *_CLIENTS.split()])
# TLS libraries build their reasons of these.
_TLS_WORDS = ERROR_WORDS | frozenset(_TLS.split())


def marks(errors: list[BaseException]) -> Marks:
    """Returns status, errno, SQLSTATE, code and the like, each from the first exception of the chain that has it."""
    found: Marks = {}
    for error in errors:
        said: dict[str, str | int | None] = {
            "status": evidence.status(error),
            "sqlstate": evidence.sqlstate(error),
            "errno": evidence.errno(error),
            "code": evidence.provider_code(error),
            "ssl": look(error, "reason") if isinstance(error, ssl.SSLError) else None,
            "exit": look(error, "returncode"),
            "field": refused(error),
        }
        if isinstance(error, socket.gaierror):
            said["dns"] = said.pop("errno")
        for name, value in said.items():
            if isinstance(value, str | int) and not isinstance(value, bool):
                found.setdefault(name, value)
    return found


def marks_in(text: str) -> Marks:
    """Reads the same from a message, where there is nothing else."""
    found: Marks = {}
    for name, pattern in _IN_TEXT:
        if name not in found and (said := pattern.search(text)):
            found[name] = said[1]
    return found


def telling(found: Marks, written: Collection[str] = ()) -> Marks:
    """Returns those marks that name a cause: a code that is neither known nor made of words of errors is taken for a
    value."""
    return {name: value for name, value in found.items() if name != "code" or _names_a_cause(str(value), written)}


def _names_a_cause(code: str, written: Collection[str]) -> bool:
    if _known_code(code) or code in written:
        return True
    return HOLE not in template(code) and any(part.lower() in ERROR_WORDS for part in _PART.findall(code))


def public(found: Marks, written: Collection[str], payload: Payload) -> Marks:
    """Returns those marks that everybody may see. ``written``: texts of the source, and codes that classes declare."""
    return {name: value for name, value in found.items() if _harmless(name, value, written, payload)}


def _harmless(name: str, value: str | int, written: Collection[str], payload: Payload) -> bool:
    text = str(value)
    match name:
        case "field":
            return True  # made of declared names
        case "code":
            known = _known_code(text)
            if not known and text not in written:
                return False
            return not any(map(payload.holds, [text] if known else _WORD.findall(text) or [text]))
        case "sqlstate":
            return _SQLSTATE.fullmatch(text) is not None and not payload.holds(text)
        case "ssl":
            words = [word.lower() for word in _WORD.findall(text)]
            known = bool(words) and set(words) <= _TLS_WORDS
            return known and not any(map(payload.holds, words))
    try:
        number = int(value)
    except ValueError:
        return False
    return {"status": 100 <= number <= 599, "errno": number in errno.errorcode, "dns": number in _DNS}.get(
        name, name == "exit" and -64 <= number <= 255
    )


def _known_code(code: str) -> bool:
    of_sqlite = _SQLITE_CODE.fullmatch(code)
    return code in _KNOWN_CODES or (of_sqlite is not None and hasattr(sqlite3, of_sqlite[1]))


def declared_codes(errors: Iterable[BaseException]) -> set[str]:
    """Returns codes that are code: constants of the exception's class, or members of an enumeration. No attribute is
    read."""
    found: set[str] = set()
    for error in errors:
        given = [kind.__dict__.get("code") for kind in type(error).__mro__ if frames.is_code(kind)]
        own = error.__dict__.get("code")
        given.append(own if isinstance(own, Enum) else None)
        found.update(str.__str__(value) for value in given if isinstance(value, str))
    return found
