"""Classifies exceptions: one table of rules, by name, errno, SQLSTATE, status and provider's code.

Libraries are recognised by the names along the MRO, as ``package.Class``, so that none has to be imported. An
application puts its own rules before these.
"""

from __future__ import annotations

import errno as e
import re
import ssl
from collections.abc import Callable, Iterable
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

# package.Class along the MRO, the most special class first. What a database refuses is tried again: a unique key may be
# a race that is over, a missing table a migration that is under way.
NAMES: dict[str, Classification] = {
    "builtins.TimeoutError": TIMEOUT,
    "builtins.ConnectionError": CONNECT,
    "builtins.EOFError": CONNECT,
    "builtins.UnicodeError": INVALID,
    "builtins.OverflowError": INVALID,
    "socket.gaierror": CONNECT,
    "socket.herror": CONNECT,
    "subprocess.TimeoutExpired": TIMEOUT,
    "concurrent.TimeoutError": TIMEOUT,
    "asyncio.TimeoutError": TIMEOUT,
    "ssl.SSLZeroReturnError": CONNECT,
    "ssl.SSLEOFError": CONNECT,
    "ssl.SSLError": TLS,
    "http.IncompleteRead": CONNECT,
    "http.BadStatusLine": CONNECT,
    "http.HTTPException": CONNECT,
    "json.JSONDecodeError": INVALID,
    "pydantic_core.ValidationError": INVALID,
    "pydantic.ValidationError": INVALID,
    "sqlite3.IntegrityError": INVALID,
    "sqlite3.DataError": INVALID,
    "sqlite3.ProgrammingError": INVALID,
    "sqlite3.InterfaceError": INVALID,
    "sqlite3.DatabaseError": UNKNOWN,
    "httpx.TimeoutException": TIMEOUT,
    "httpx.TransportError": CONNECT,
    "httpx.InvalidURL": INVALID,
    "httpx.UnsupportedProtocol": INVALID,
    "httpx.TooManyRedirects": INVALID,
    "httpx.DecodingError": INVALID,
    "httpcore.TimeoutException": TIMEOUT,
    "httpcore.NetworkError": CONNECT,
    "httpcore.ProtocolError": CONNECT,
    "requests.Timeout": TIMEOUT,
    "requests.SSLError": TLS,
    "requests.ConnectionError": CONNECT,
    "requests.ChunkedEncodingError": CONNECT,
    "requests.TooManyRedirects": INVALID,
    "requests.InvalidURL": INVALID,
    "requests.MissingSchema": INVALID,
    "requests.InvalidSchema": INVALID,
    "requests.JSONDecodeError": INVALID,
    "urllib3.TimeoutError": TIMEOUT,
    "urllib3.SSLError": TLS,
    "urllib3.NewConnectionError": CONNECT,
    "urllib3.ProtocolError": CONNECT,
    "urllib3.MaxRetryError": CONNECT,
    "urllib3.NameResolutionError": CONNECT,
    "aiohttp.ServerTimeoutError": TIMEOUT,
    "aiohttp.ClientSSLError": TLS,
    "aiohttp.ClientConnectionError": CONNECT,
    "aiohttp.ClientPayloadError": CONNECT,
    "aiohttp.InvalidURL": INVALID,
    "botocore.ConnectTimeoutError": TIMEOUT,
    "botocore.ReadTimeoutError": TIMEOUT,
    "botocore.SSLError": TLS,
    "botocore.HTTPClientError": CONNECT,
    "botocore.ConnectionError": CONNECT,
    "botocore.NoCredentialsError": DENIED,
    "botocore.ParamValidationError": INVALID,
    "openai.APITimeoutError": TIMEOUT,
    "openai.APIConnectionError": CONNECT,
    "anthropic.APITimeoutError": TIMEOUT,
    "anthropic.APIConnectionError": CONNECT,
    "redis.TimeoutError": TIMEOUT,
    "redis.AuthenticationError": DENIED,
    "redis.BusyLoadingError": UNAVAILABLE,
    "redis.ConnectionError": CONNECT,
    "redis.ReadOnlyError": UNAVAILABLE,
    "redis.DataError": INVALID,
    "psycopg_pool.PoolTimeout": TIMEOUT,
    "psycopg.IntegrityError": INVALID,
    "psycopg.DataError": INVALID,
    "psycopg.ProgrammingError": INVALID,
    "psycopg.OperationalError": CONNECT,
    "psycopg2.IntegrityError": INVALID,
    "psycopg2.DataError": INVALID,
    "psycopg2.ProgrammingError": INVALID,
    "psycopg2.OperationalError": CONNECT,
    "asyncpg.ConnectionDoesNotExistError": CONNECT,
    "asyncpg.InterfaceError": INVALID,
    "asyncpg.DataError": INVALID,
    "asyncpg.ConnectionFailureError": CONNECT,
    "pymysql.OperationalError": CONNECT,
    "MySQLdb.OperationalError": CONNECT,
    "sqlalchemy.TimeoutError": TIMEOUT,
    "sqlalchemy.ArgumentError": INVALID,
    "django.ValidationError": INVALID,
    "django.DataError": INVALID,
    "django.IntegrityError": INVALID,
    "elastic_transport.ConnectionTimeout": TIMEOUT,
    "elastic_transport.TlsError": TLS,
    "elastic_transport.ConnectionError": CONNECT,
    "pymongo.NetworkTimeout": TIMEOUT,
    "pymongo.ServerSelectionTimeoutError": CONNECT,
    "pymongo.AutoReconnect": CONNECT,
    "kafka.KafkaTimeoutError": TIMEOUT,
    "aiokafka.KafkaTimeoutError": TIMEOUT,
    "pika.AMQPConnectionError": CONNECT,
    "websockets.ConnectionClosed": CONNECT,
    "paramiko.SSHException": CONNECT,
    "smtplib.SMTPServerDisconnected": CONNECT,
    "smtplib.SMTPConnectError": CONNECT,
    "ftplib.error_temp": UNAVAILABLE,
    "grpc.FutureTimeoutError": TIMEOUT,
}
# Of libraries nobody thought of: names that can only mean one thing.
PLAIN_NAMES: dict[str, Classification] = {
    "TimeoutException": TIMEOUT,
    "Timeout": TIMEOUT,
    "TimeoutError": TIMEOUT,
    "ReadTimeout": TIMEOUT,
    "ConnectTimeout": TIMEOUT,
    "ConnectionTimeout": TIMEOUT,
    "PoolTimeout": TIMEOUT,
    "APITimeoutError": TIMEOUT,
    "ConnectionError": CONNECT,
    "ConnectError": CONNECT,
    "NetworkError": CONNECT,
    "TransportError": CONNECT,
    "APIConnectionError": CONNECT,
    "ConnectionFailure": CONNECT,
    "ConnectionClosedError": CONNECT,
}
ERRNOS: dict[int, Classification] = dict.fromkeys(
    (
        e.ECONNREFUSED,
        e.ECONNRESET,
        e.ECONNABORTED,
        e.EPIPE,
        e.EHOSTUNREACH,
        e.ENETUNREACH,
        e.EHOSTDOWN,
        e.ENETDOWN,
        e.ENETRESET,
        e.ENOTCONN,
        e.ESHUTDOWN,
        e.EADDRNOTAVAIL,
    ),
    CONNECT,
) | {e.ETIMEDOUT: TIMEOUT}
# By code, else by class (the first two characters).
SQLSTATES: dict[str, Classification] = {
    "08": CONNECT,
    "57P01": CONNECT,
    "57P02": CONNECT,
    "57P03": CONNECT,
    "57014": TIMEOUT,
    "55P03": TIMEOUT,
    "25P03": TIMEOUT,
    "25P04": TIMEOUT,
    "57P05": TIMEOUT,
    "40": CONFLICT,
    "25006": UNAVAILABLE,
    "53300": CONNECT,
    "53": UNAVAILABLE,
    "58": UNAVAILABLE,
    "28": DENIED,
    "22": INVALID,
    "23": INVALID,
    "42501": DENIED,
    "42": INVALID,
    "0A": INVALID,
    "54": INVALID,
}
_SQLITE = {
    "SQLITE_BUSY": TIMEOUT,
    "SQLITE_LOCKED": TIMEOUT,
    "SQLITE_INTERRUPT": TIMEOUT,
    "SQLITE_CONSTRAINT": INVALID,
    "SQLITE_ERROR": INVALID,
    "SQLITE_MISMATCH": INVALID,
    "SQLITE_TOOBIG": INVALID,
    "SQLITE_FULL": UNAVAILABLE,
    "SQLITE_READONLY": DENIED,
    "SQLITE_PERM": DENIED,
    "SQLITE_AUTH": DENIED,
}
# What providers call it, where their status says something else: AWS answers 400 to what should be tried again.
CODES: dict[str, Classification] = {
    **dict.fromkeys(
        (
            "Throttling",
            "ThrottlingException",
            "ThrottledException",
            "RequestThrottled",
            "RequestThrottledException",
            "TooManyRequestsException",
            "ProvisionedThroughputExceededException",
            "RequestLimitExceeded",
            "SlowDown",
            "BandwidthLimitExceeded",
            "LimitExceededException",
            "TransactionInProgressException",
            "PriorRequestNotComplete",
            "EC2ThrottledException",
            "RESOURCE_EXHAUSTED",
        ),
        THROTTLED,
    ),
    **dict.fromkeys(("RequestTimeout", "RequestTimeoutException", "DEADLINE_EXCEEDED"), TIMEOUT),
    **dict.fromkeys(("ExpiredToken", "ExpiredTokenException", "RequestExpired", "UNAUTHENTICATED"), DENIED),
    "UNAVAILABLE": CONNECT,
    "TransactionCanceledException": CONFLICT,
    "OperationAborted": CONFLICT,
}


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
        for kind in type(error).__mro__:
            for name in (f"{kind.__module__}.{kind.__qualname__}", _short(kind), kind.__qualname__):
                if name in rules.named:
                    return rules.named[name]
    return None


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
