"""Translates what sqlite3 raises into errors of the port."""

from __future__ import annotations

import sqlite3

from redrive.errors import (
    InvalidInput,
    RedriveError,
    StoreError,
    StoreUnavailable,
    StoreUnusable,
)
from redrive.stores.refusals import no_usable_schema, not_now

# Primary result codes; an extended code carries its primary one in the low byte.
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)
_CORRUPT = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_SCHEMA = ("no such table", "no such column", "no such view", "has no column named")
# After one of these the connection itself is in doubt: the next request gets a new one.
_BROKEN = (*_CORRUPT, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_MISUSE)


def code_of(error: BaseException) -> int:
    """Returns the primary SQLite result code, or 0 when the error is not SQLite's."""
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else 0


def is_busy(error: BaseException) -> bool:
    return code_of(error) in _BUSY


def breaks_connection(error: BaseException) -> bool:
    return code_of(error) in _BROKEN


def translate(error: BaseException, where: str) -> BaseException:
    """Returns an error of the port for one of the driver's; errors that are neither are passed on as they are."""
    if isinstance(error, sqlite3.Error):
        return _translate(error, where)
    if isinstance(error, MemoryError):  # how the driver says SQLITE_NOMEM
        return not_now(where, "out of memory", hint="give the process more memory")
    if isinstance(error, UnicodeError | OverflowError):
        return InvalidInput(f"{where} cannot store a value: {error}", hint="text must be valid, numbers 64-bit")
    if isinstance(error, StopIteration):  # the one exception that a future does not carry
        return StoreError(f"work on {where} raised StopIteration")
    return error


def _translate(error: sqlite3.Error, where: str) -> RedriveError:
    said = str(error).strip() or type(error).__name__
    match code_of(error):
        case code if code in _BUSY:
            return StoreUnavailable(
                f"{where} is locked by another process: {said}",
                hint="find who holds a long transaction on it (fuser, lsof); redrive keeps its own short",
            )
        case code if code in _CORRUPT:
            return StoreUnusable(
                f"{where} is damaged or not a database: {said}",
                hint="restore it from a backup, salvage it with the sqlite3 shell's .recover, or name another file",
            )
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return StoreUnusable(
                f"{where} cannot be written: {said}",
                hint="give this user write permission on the file, its -wal and -shm files and their directory",
            )
        case sqlite3.SQLITE_FULL:
            return StoreUnusable(f"{where} has no space left: {said}", hint="free space on that disk")
        case sqlite3.SQLITE_CANTOPEN:
            return StoreUnusable(
                f"{where} cannot be opened: {said}", hint="do the directory and the permissions exist for this user?"
            )
        case sqlite3.SQLITE_IOERR:
            return not_now(where, said, hint="check the disk and its mount")
        case sqlite3.SQLITE_TOOBIG:
            return InvalidInput(f"{where} cannot store a value: {said}")
    return _refused(error, said, where)


def _refused(error: sqlite3.Error, said: str, where: str) -> RedriveError:
    if any(mark in said for mark in _SCHEMA):
        return no_usable_schema(where, said)
    if isinstance(error, sqlite3.DataError):
        return InvalidInput(f"{where} cannot store a value: {said}")
    return StoreError(f"{where} refused: {said}")
