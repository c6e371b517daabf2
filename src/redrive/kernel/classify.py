"""Classifies exceptions: one table of rules, by name, errno, SQLSTATE, status and provider's code.

Libraries are recognised by the names along the MRO, as ``package.Class``, so that none has to be imported. An
application puts its own rules before these.
"""

from __future__ import annotations

import errno
import re
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from redrive.errors import ConfigError, ErrorCode, RedriveError
from redrive.kernel import evidence


class FailureType(StrEnum):
    """The coarse split used for statistics."""

    MODEL_ERROR = "model_error"
    PARAM_ERROR = "param_error"
    TIMEOUT = "timeout"
    NETWORK = "network"
    UNKNOWN = "unknown"


@dataclass(slots=True, frozen=True)
class Classification:
    """Why an attempt failed (``error_reason``), what that counts as, and whether another attempt may help: as it says,
    else by the code."""

    reason: str
    failure_type: FailureType | str = FailureType.UNKNOWN
    retryable: bool | None = None
    code: str = ErrorCode.EXECUTION_FAILED.value

    def __post_init__(self) -> None:
        known = [kind.value for kind in FailureType]
        if self.failure_type not in known:
            raise ConfigError(f"failure_type {self.failure_type!r} is not one of {', '.join(known)}")
        object.__setattr__(self, "failure_type", FailureType(self.failure_type))
        if self.retryable is None:
            object.__setattr__(self, "retryable", self.code == ErrorCode.EXECUTION_FAILED)

    @property
    def type(self) -> FailureType:
        return FailureType(self.failure_type)


_T = FailureType
UNKNOWN = Classification("unknown_exception")
# Of our own exceptions: their status is what we answer over HTTP and their code is ours, not those of another side.
# Nor do their words name a type: "the store cannot be reached" is no failure of what the handler calls.
OURS = Classification("unknown_exception", _T.UNKNOWN, True)
DETERMINISTIC = Classification("deterministic_exception", _T.PARAM_ERROR, False)
TIMEOUT = Classification("timeout", _T.TIMEOUT)
CONNECT = Classification("connect", _T.NETWORK)
TLS = Classification("tls", _T.NETWORK)
THROTTLED = Classification("http_429", _T.NETWORK)
INVALID = Classification("invalid_input", _T.PARAM_ERROR)
CONFLICT = Classification("conflict")
UNAVAILABLE = Classification("unavailable", _T.MODEL_ERROR)
DENIED = Classification("denied", _T.MODEL_ERROR)


def _table(groups: Mapping[Classification, str]) -> dict[str, Classification]:
    return {name: meaning for meaning, names in groups.items() for name in names.split()}


# package.Class along the MRO, the most special class first. What a database refuses is tried again: a unique key may be
# a race that is over, a missing table a migration that is under way.
NAMES = _table(
    {
        TIMEOUT: """
            builtins.TimeoutError subprocess.TimeoutExpired concurrent.TimeoutError asyncio.TimeoutError
            httpx.TimeoutException httpcore.TimeoutException requests.Timeout urllib3.TimeoutError
            aiohttp.ServerTimeoutError botocore.ConnectTimeoutError botocore.ReadTimeoutError openai.APITimeoutError
            anthropic.APITimeoutError redis.TimeoutError psycopg_pool.PoolTimeout sqlalchemy.TimeoutError
            elastic_transport.ConnectionTimeout pymongo.NetworkTimeout kafka.KafkaTimeoutError
            aiokafka.KafkaTimeoutError grpc.FutureTimeoutError
        """,
        CONNECT: """
            builtins.ConnectionError builtins.EOFError socket.gaierror socket.herror ssl.SSLZeroReturnError
            ssl.SSLEOFError http.IncompleteRead http.BadStatusLine http.HTTPException smtplib.SMTPServerDisconnected
            smtplib.SMTPConnectError httpx.TransportError httpcore.NetworkError httpcore.ProtocolError
            requests.ConnectionError requests.ChunkedEncodingError urllib3.NewConnectionError urllib3.ProtocolError
            urllib3.MaxRetryError urllib3.NameResolutionError aiohttp.ClientConnectionError aiohttp.ClientPayloadError
            botocore.HTTPClientError botocore.ConnectionError openai.APIConnectionError anthropic.APIConnectionError
            redis.ConnectionError psycopg.OperationalError psycopg2.OperationalError
            asyncpg.ConnectionDoesNotExistError asyncpg.ConnectionFailureError pymysql.OperationalError
            MySQLdb.OperationalError elastic_transport.ConnectionError pymongo.ServerSelectionTimeoutError
            pymongo.AutoReconnect pika.AMQPConnectionError websockets.ConnectionClosed paramiko.SSHException
        """,
        TLS: """
            ssl.SSLError requests.SSLError urllib3.SSLError aiohttp.ClientSSLError botocore.SSLError
            elastic_transport.TlsError
        """,
        INVALID: """
            builtins.UnicodeError builtins.OverflowError json.JSONDecodeError pydantic_core.ValidationError
            pydantic.ValidationError sqlite3.IntegrityError sqlite3.DataError sqlite3.ProgrammingError
            sqlite3.InterfaceError httpx.InvalidURL httpx.UnsupportedProtocol httpx.TooManyRedirects
            httpx.DecodingError requests.TooManyRedirects requests.InvalidURL requests.MissingSchema
            requests.InvalidSchema requests.JSONDecodeError aiohttp.InvalidURL botocore.ParamValidationError
            redis.DataError psycopg.IntegrityError psycopg.DataError psycopg.ProgrammingError
            psycopg2.IntegrityError psycopg2.DataError psycopg2.ProgrammingError asyncpg.InterfaceError
            asyncpg.DataError sqlalchemy.ArgumentError django.ValidationError django.DataError django.IntegrityError
        """,
        DENIED: "botocore.NoCredentialsError redis.AuthenticationError",
        UNAVAILABLE: "redis.BusyLoadingError redis.ReadOnlyError ftplib.error_temp",
        UNKNOWN: "sqlite3.DatabaseError",
    }
)
# Of libraries nobody thought of: names that can only mean one thing.
PLAIN_NAMES = _table(
    {
        TIMEOUT: """
            TimeoutException Timeout TimeoutError ReadTimeout ConnectTimeout ConnectionTimeout PoolTimeout
            APITimeoutError
        """,
        CONNECT: """
            ConnectionError ConnectError NetworkError TransportError APIConnectionError ConnectionFailure
            ConnectionClosedError
        """,
    }
)
_LOST = """
    ECONNREFUSED ECONNRESET ECONNABORTED EPIPE EHOSTUNREACH ENETUNREACH EHOSTDOWN ENETDOWN ENETRESET ENOTCONN ESHUTDOWN
    EADDRNOTAVAIL
"""
ERRNOS = {getattr(errno, name): CONNECT for name in _LOST.split()} | {errno.ETIMEDOUT: TIMEOUT}
# By code, else by class (the first two characters).
SQLSTATES = _table(
    {
        CONNECT: "08 57P01 57P02 57P03 53300",
        TIMEOUT: "57014 55P03 25P03 25P04 57P05",
        CONFLICT: "40",
        UNAVAILABLE: "25006 53 58",
        DENIED: "28 42501",
        INVALID: "22 23 42 0A 54",
    }
)
# By what SQLite's name of it begins with.
_SQLITE = _table(
    {
        TIMEOUT: "SQLITE_BUSY SQLITE_LOCKED SQLITE_INTERRUPT",
        INVALID: "SQLITE_CONSTRAINT SQLITE_ERROR SQLITE_MISMATCH SQLITE_TOOBIG",
        UNAVAILABLE: "SQLITE_FULL",
        DENIED: "SQLITE_READONLY SQLITE_PERM SQLITE_AUTH",
    }
)
# What providers call it, where their status says something else: AWS answers 400 to what should be tried again.
CODES = _table(
    {
        THROTTLED: """
            Throttling ThrottlingException ThrottledException RequestThrottled RequestThrottledException
            TooManyRequestsException ProvisionedThroughputExceededException RequestLimitExceeded SlowDown
            BandwidthLimitExceeded LimitExceededException TransactionInProgressException PriorRequestNotComplete
            EC2ThrottledException RESOURCE_EXHAUSTED
        """,
        TIMEOUT: "RequestTimeout RequestTimeoutException DEADLINE_EXCEEDED",
        DENIED: "ExpiredToken ExpiredTokenException RequestExpired UNAUTHENTICATED",
        CONNECT: "UNAVAILABLE",
        CONFLICT: "TransactionCanceledException OperationAborted",
    }
)


def by_status(status: int) -> Classification:
    """Classifies an HTTP status. Whoever is refused (401, 403) is so by the provider: the task was not wrong."""
    if status == 429:
        return THROTTLED
    if status == 408:
        return Classification("http_408", _T.TIMEOUT)
    if status == 504:
        return Classification("http_5xx", _T.TIMEOUT)
    if status >= 500:
        return Classification("http_5xx", _T.MODEL_ERROR)
    if status in (401, 403):
        return Classification("http_4xx", _T.MODEL_ERROR, False)
    if status >= 400:
        return Classification("http_4xx", _T.PARAM_ERROR, False)
    return UNKNOWN


# Words decide only where neither a status nor an exception does, in this order; also inside of a word ("apikey"), but
# no status inside of a number.
_WORDS = [
    (_T.TIMEOUT, re.compile(r"time-?out|timed out|超时", re.I)),
    (_T.NETWORK, re.compile(r"network|连接|fetch failed", re.I)),
    (_T.MODEL_ERROR, re.compile(r"model|api|(?<!\d)40[13](?!\d)", re.I)),
    (_T.PARAM_ERROR, re.compile(r"param|invalid|(?<!\d)400(?!\d)", re.I)),
]
# Of codes that say themselves what was wrong, whatever the words beside them are.
CODE_TYPES: dict[str, FailureType] = {
    **{code.value: _T.PARAM_ERROR for code in ErrorCode if code is not ErrorCode.EXECUTION_FAILED},
    "INSUFFICIENT_CREDITS": _T.PARAM_ERROR,
    "RESULT_NOT_STORED": _T.UNKNOWN,
}


def by_words(message: str, rules: Iterable[Rule] = (), code: str | None = None) -> FailureType:
    """Classifies a message by its words, of which the first 4,000 characters are read; those of ``rules`` come
    first, then the ``code`` beside it, if that says enough."""
    for rule in rules:
        if (known := rule.type_of(message)) is not None:
            return known
    if code in CODE_TYPES:
        return CODE_TYPES[code]
    text = message[:4_000]
    return next((kind for kind, pattern in _WORDS if pattern.search(text)), _T.UNKNOWN)


class Rule(Protocol):
    """A row of an application's own table (``kernel/failure_rule.py``)."""

    def classify(self, error: BaseException) -> Classification | None: ...
    def type_of(self, message: str) -> FailureType | None: ...


@dataclass(slots=True, eq=False)
class FailureRules:
    """An application's own rules for its failures; applied before the table: functions, rows, then names."""

    classify: list[Callable[[BaseException], Classification | None]] = field(default_factory=list)
    named: dict[str, Classification] = field(default_factory=dict)
    fingerprint: list[Callable[[BaseException], str | None]] = field(default_factory=list)
    table: list[Rule] = field(default_factory=list)
    # Told when one of these functions raises or gives back something else: the failure itself is never lost for it.
    on_error: Callable[[str, Callable[..., object], object], None] = lambda *_: None


NO_RULES = FailureRules()


def classify(
    error: BaseException, deterministic: tuple[type[BaseException], ...] = (), rules: FailureRules = NO_RULES
) -> Classification:
    """Classifies an exception. Unknown ones are retryable: the fail-safe default."""
    if deterministic and isinstance(error, deterministic):
        return DETERMINISTIC
    found = _by_application(error, rules)
    if found is not None:
        return found
    own = evidence.look(error, "classification")  # whoever raised it knows
    if isinstance(own, Classification):
        return own
    if isinstance(error, RedriveError):
        if error.code in _NON_RETRYABLE:
            return Classification(error.code.lower(), CODE_TYPES[error.code], False, error.code)
        return OURS
    found = _by_table(error) or UNKNOWN
    return TLS if found is CONNECT and any(map(_of_tls, evidence.chain(error))) else found


def _of_tls(error: BaseException) -> bool:
    """True for a failure of TLS itself, False for a connection that was lost under it."""
    return isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError)


_NON_RETRYABLE = frozenset(code.value for code in ErrorCode if code is not ErrorCode.EXECUTION_FAILED)


def _by_application(error: BaseException, rules: FailureRules) -> Classification | None:
    for function in rules.classify:
        try:
            found: object = function(error)
        except Exception as raised:
            found = raised
        if isinstance(found, Classification):
            return found
        if found is not None:
            rules.on_error("classify", function, found)
    for rule in rules.table:
        if (known := rule.classify(error)) is not None:
            return known
    if rules.named:
        return next((rules.named[name] for name in names_of(type(error)) if name in rules.named), None)
    return None


def names_of(kind: type) -> Iterator[str]:
    """Yields what an application may call a class, or one that it derives from."""
    for one in kind.__mro__:
        yield f"{one.__module__}.{one.__qualname__}"
        yield f"{one.__module__.partition('.')[0]}.{one.__qualname__}"
        yield _short(one)
        yield one.__qualname__


def _by_table(error: BaseException, seen: int = 0) -> Classification | None:
    """Looks up the exception itself, then what a library wrapped in it, then what it was raised from."""
    if isinstance(error, RedriveError):
        return None
    found = _itself(error)
    if found is not None or seen > 8:
        return found
    for inner in evidence.wrapped(error):
        found = _by_table(inner, seen + 1)
        if found is not None:
            return found
    if error.__cause__ is not None:
        found = _by_table(error.__cause__, seen + 1)
        # The application caught it and said something of its own: that is not for us to call final.
        return found if found is not None and found.retryable else None
    return None


def _itself(error: BaseException) -> Classification | None:
    code = evidence.provider_code(error)
    if code in CODES:
        return CODES[code]
    status = evidence.status(error)
    if status is not None and status >= 400:
        return by_status(status)
    state = evidence.sqlstate(error)
    if state is not None and (found := SQLSTATES.get(state) or SQLSTATES.get(state[:2])):
        return found
    if code is not None and code.startswith("SQLITE_"):
        return next((found for name, found in _SQLITE.items() if code.startswith(name)), None)
    number = evidence.errno(error)
    if number in ERRNOS:
        return ERRNOS[number]
    if isinstance(error, ssl.SSLError) and "timed out" in str(error.args[-1:])[:200]:
        return TIMEOUT
    return _by_name(type(error).__mro__)


def _by_name(kinds: Iterable[type]) -> Classification | None:
    for kind in kinds:
        found = NAMES.get(_short(kind)) or PLAIN_NAMES.get(kind.__name__)
        if found is not None:
            return None if found is UNKNOWN else found
    return None


def _short(kind: type) -> str:
    return f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
