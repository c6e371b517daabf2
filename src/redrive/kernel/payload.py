"""JSON of payloads and results: strict on the way in, exact on the way out."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable
from functools import cache
from itertools import accumulate
from json import encoder as standard
from typing import Any

from redrive.errors import PayloadInvalid
from redrive.kernel.task import MAX_PAYLOAD_BYTES, MAX_PAYLOAD_DEPTH

# An escaped NUL; an escaped backslash before "u0000" is just text.
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
# It never goes back, and takes what has no end up to the end: linear also for what is no JSON.
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_NOT_BRACKETS = re.compile(r"[^\[\]{}]+")
# What Python reads; from the first digit on, so that each digit is looked at once.
MAX_DIGITS = 4300
_LONG_NUMBER = re.compile(rf"(?<!\d)\d{{{MAX_DIGITS + 1}}}")
_DIGITS_REFUSED = "for integer string conversion"  # Python's words for such a number
LONG_NUMBER = f"has a number of more than {MAX_DIGITS:,} digits"
LONG_NUMBER_HINT = "most programs cannot read it; pass it as text"
_SHORT = 16_384  # characters that the standard library reads as fast as others do
_FLAT = 100  # lists and objects at most, where nobody has to count how deep they are
# So many characters hold no more than the allowed levels, each of which has two brackets.
SHORT_TEXT = 2 * MAX_PAYLOAD_DEPTH
LARGEST_OF_SHORT = 8 * SHORT_TEXT  # bytes, with a space after each mark
_decoder = json.JSONDecoder()
# Without a look for spaces around it, which our own text has not: the same at half the price.
_scan: Callable[[str, int], tuple[Any, int]] = getattr(_decoder, "scan_once", _decoder.raw_decode)
_STEP = {"[": 1, "{": 1, "]": -1, "}": -1}
_encoder = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":"))


class JsonText(str):
    """A document as the store keeps it: JSON text that was not parsed. Pages pass it on as it is."""

    __slots__ = ()


class Cut:
    """Stands for a document that was left out because it is long."""

    def __repr__(self) -> str:
        return "CUT"


CUT = Cut()


class _Encoder(threading.local):
    """The standard library's encoder, made once for each thread: ``JSONEncoder.encode`` makes one for each call, at
    twice the price of encoding. ``open`` is what it is inside of, to notice circles."""

    def __init__(self) -> None:
        self.open: dict[int, Any] = {}
        make: Callable[..., Callable[[Any, int], Iterable[str]]] | None = getattr(standard, "c_make_encoder", None)
        if make is None:  # not CPython
            self.chunks: Callable[[Any, int], Iterable[str]] = lambda value, _level: _encoder.iterencode(value)
        else:
            quote = standard.encode_basestring
            self.chunks = make(self.open, _encoder.default, quote, None, ":", ",", False, False, False)

    def encode(self, value: Any) -> str:
        try:
            return "".join(self.chunks(value, 0))
        except BaseException:
            self.open.clear()
            raise


_own = _Encoder()


def encode(value: Any, what: str = "payload", limit: int = MAX_PAYLOAD_BYTES) -> str:
    """Returns JSON text that every store keeps unchanged, or raises with what is wrong."""
    try:
        text = _own.encode(value)
        if not text.isascii():
            text.encode()  # half of a surrogate pair is refused here
    except (TypeError, ValueError, RecursionError, UnicodeEncodeError) as error:
        if digits_refused(error):
            raise PayloadInvalid(f"{what} {LONG_NUMBER}", hint=LONG_NUMBER_HINT) from None
        raise PayloadInvalid(f"{what} cannot be stored as JSON: {_reason(error)}", hint=_hint(error)) from None
    check(text, what, limit)
    return text


def digits_refused(error: BaseException | None) -> bool:
    """Returns whether Python refused to read or write a number for its many digits."""
    return isinstance(error, ValueError) and _DIGITS_REFUSED in str(error)


def check(text: str, what: str = "payload", limit: int = MAX_PAYLOAD_BYTES) -> None:
    """Refuses JSON text that is too large, too deep, or holds what PostgreSQL cannot keep."""
    # Most are so short that they can be neither large nor deep, nor have a number that is too long.
    if len(text) > SHORT_TEXT or limit < LARGEST_OF_SHORT:
        _check_long(text, what, limit)
    if "u0000" in text and _NUL.search(text):
        raise PayloadInvalid(
            f"{what} contains a NUL character, which PostgreSQL cannot store", hint="remove it, or encode the text"
        )


def _check_long(text: str, what: str, limit: int) -> None:
    size = size_of(text, limit)
    if size > limit:
        raise PayloadInvalid(
            f"{what} is {size:,} bytes, over the limit of {limit:,}",
            hint="store large data elsewhere and pass a reference to it",
        )
    # The brackets are counted before they are followed.
    if text.count("[") + text.count("{") > MAX_PAYLOAD_DEPTH and depth_of(text) > MAX_PAYLOAD_DEPTH:
        raise PayloadInvalid(
            f"{what} is nested more than {MAX_PAYLOAD_DEPTH} levels deep",
            hint="nest it less deeply, or store it elsewhere and pass a reference to it",
        )
    if has_long_number(text):
        raise PayloadInvalid(f"{what} {LONG_NUMBER}", hint=LONG_NUMBER_HINT)


def size_of(text: str, limit: int = MAX_PAYLOAD_BYTES) -> int:
    """Returns the bytes of JSON text as PostgreSQL writes it: with a space after each comma and colon. Counted exactly
    only where that could make the difference."""
    size = len(text) if text.isascii() else len(text.encode())
    if not limit / 2 < size <= limit:
        return size
    bare = _STRING.sub("", text)
    return size + sum(bare.count(mark) - bare.count(mark + " ") for mark in ",:")


def depth_of(text: str) -> int:
    """Returns how many lists and objects are inside each other in a JSON text."""
    brackets = _NOT_BRACKETS.sub("", _STRING.sub('""', text))
    return max(accumulate(map(_STEP.__getitem__, brackets)), default=0)


def encode_result(value: Any, what: str) -> str:
    """Returns a result as JSON text: what JSON has as it is, and else what payloads take (times, Decimal, UUID,
    dataclasses, models, sets …), written as payloads write them."""
    try:
        return encode(value, what)
    except PayloadInvalid as refusal:
        from pydantic_core import to_jsonable_python  # most results do not need it

        try:
            plain = to_jsonable_python(value, bytes_mode="base64", inf_nan_mode="constants")
        except Exception:  # serializers may be the application's own
            raise refusal from None
        return encode(plain, what)


def decode(text: str | bytes | None) -> Any:
    """Parses JSON text; ValueError for what is none, and for half of a surrogate pair."""
    if text is None:
        return None
    if type(text) is str and "\\u" not in text and (len(text) <= _FLAT or _is_simple(text)):
        try:
            value, end = _scan(text, 0)
        except (StopIteration, ValueError):
            pass  # the strict parser says what is wrong with it
        else:
            if end == len(text):
                return value
    return _strict_parser()(text)


def _is_simple(text: str) -> bool:
    return len(text) <= _SHORT and text.count("[") + text.count("{") <= _FLAT


@cache
def _strict_parser() -> Callable[[str | bytes], Any]:
    """Returns the parser for what is long, deep or odd. It is imported then: that takes a tenth of a second."""
    from pydantic_core import from_json

    return from_json


def decode_shallow(text: str | bytes | None) -> Any:
    """Parses JSON text; ValueError for what is nested deeper than a payload may be."""
    value = decode(text)
    whole = text.decode() if isinstance(text, bytes) else text or ""
    if whole.count("[") + whole.count("{") > MAX_PAYLOAD_DEPTH and depth_of(whole) > MAX_PAYLOAD_DEPTH:
        raise ValueError(f"it is nested more than {MAX_PAYLOAD_DEPTH} levels deep")
    return value


def has_long_number(text: str) -> bool:
    """Returns whether JSON text has a number of more digits than Python and most other clients read. So many in a row
    cover one of each ``MAX_DIGITS`` characters: only there is looked first."""
    if not any(map(str.isdigit, text[MAX_DIGITS::MAX_DIGITS])):
        return False
    return _LONG_NUMBER.search(text) is not None and _LONG_NUMBER.search(_STRING.sub('""', text)) is not None


def page_text(text: str) -> JsonText:
    """Returns a document for a page, as text. One with a number that most clients refuse to read would make the whole
    page unreadable for them: a note takes its place."""
    return JsonText(_own.encode({"unreadable": f"it {LONG_NUMBER}"}) if has_long_number(text) else text)


def readable(text: str | bytes | None) -> Any:
    """Parses a stored value for display. One that cannot be read (nested too deeply, say, and put there by other means)
    is replaced by a note, so that the rest can be shown."""
    try:
        return decode(text)
    except ValueError as error:
        return {"unreadable": str(error)}


def _reason(error: Exception) -> str:
    return "it is too deeply nested" if isinstance(error, RecursionError) else str(error)


def _hint(error: Exception) -> str:
    if "Out of range float" in str(error):
        return "NaN and infinity are not JSON; send null or a string instead"
    if isinstance(error, UnicodeEncodeError):
        return "the text holds half of a surrogate pair; it was probably cut in the middle of a character"
    return "use dicts with text keys, lists, text, numbers, booleans and None"
