"""Store URLs: what is understood, and that nothing secret is ever shown of one that is not."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import os
import traceback
from inspect import signature
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import quote, unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive import App
from redrive.cli.main import run
from redrive.errors import ConfigError, RedriveError
from redrive.stores import make_store, shown_url
from redrive.stores.postgres import url as postgres
from redrive.stores.postgres.store import PostgresStore
from redrive.stores.sqlite import url as sqlite
from tests.effort import tries

SECRET = "S3cretPw"
NOWHERE = "127.0.0.1:1"
SPECIAL = "/?#@[]:%&=;,+\\ \"'<>|{}^`$!*()\t\n\x00é"
JUNK = st.one_of(
    st.just(""), st.text(st.sampled_from(SPECIAL), max_size=4), st.text(st.sampled_from("ab1" + SPECIAL), max_size=8)
)
USERS = st.sampled_from(["u", "", "ann.b-c", "a%40b", "a b", "1"])
HOSTS = st.sampled_from(
    [NOWHERE, "", "localhost:1", "[::1]:1", "[::1", "::1]", "h:1:2", "h:99999", f"{NOWHERE},{NOWHERE}"]
)
SCHEMES = st.sampled_from(
    [
        "postgresql",
        "postgres",
        "POSTGRESQL",
        "postgresql+asyncpg",
        "postgres+psycopg",
        "postgresql+what",
        "mysql",
        "jdbc",
        "jdbc:postgresql",
        "sqlite",
        "sqlite+aiosqlite",
        "redis",
        "oracle+thin",
        "",
        SECRET,
        "postgresql ",
        " postgresql",
    ]
)
SLASHES = st.sampled_from(["://", "://", "://", ":", ":/", ":///", "//", ""])
OPTIONS = st.sampled_from(
    ["password", "key", "pwd", "sslpassword", "Password", "passwd", "token", "sslmode", "oops", "port"]
)
WRITTEN = st.sampled_from([SECRET, "".join(f"%{ord(c):02x}" for c in SECRET), f"%{SECRET}", SECRET + "%"])


@st.composite
def urls(draw: st.DrawFn) -> str:
    """URLs and what people write in their place, with a secret where a password would be."""
    secret = draw(JUNK) + draw(WRITTEN) + draw(JUNK)
    where = f"{draw(HOSTS)}{draw(st.sampled_from(['', '/', '/db', '/db/x', '/d@b']))}"
    start = f"{draw(SCHEMES)}{draw(SLASHES)}"
    match draw(st.integers(0, 5)):
        case 0 | 1:
            return f"{start}{draw(USERS)}:{secret}@{where}"
        case 2:
            return f"{start}{draw(USERS)}@{where}?{draw(OPTIONS)}={secret}"
        case 3:
            return f"{start}{where}?{draw(JUNK)}&{draw(OPTIONS)}={secret}&user=u@h"
        case 4:
            return f"host={NOWHERE} {draw(OPTIONS)}={secret} dbname=x"
    return f"{start}{draw(USERS)}:{secret}@{draw(USERS)}:{secret}@{where}"


def insist_it_is_not_in(what: object) -> None:
    text = str(what)
    for form in (text, unquote(text), unquote(unquote(text))):
        assert SECRET.lower() not in form.lower(), text


def look_at(error: BaseException | None) -> None:
    """All that anybody could print of an error and of what caused it."""
    while error is not None:
        for said in (error, repr(error), getattr(error, "hint", ""), vars(error), error.args):
            insist_it_is_not_in(said)
        insist_it_is_not_in("".join(traceback.format_exception_only(error)))
        error = error.__cause__ or error.__context__


@contextlib.contextmanager
def refused() -> Any:
    """Whatever is raised is redrive's own, and says nothing that it should not."""
    try:
        yield
    except RedriveError as error:
        look_at(error)


async def used(store: Any) -> None:
    try:
        await store.open()
    finally:
        await store.close()


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_no_part_of_the_library_shows_a_password(elsewhere: Path) -> None:
    @settings(max_examples=tries(40, 150, 150), deadline=None)
    @given(urls())
    def each(url: str) -> None:
        insist_it_is_not_in(shown_url(url))
        with refused():
            app = App(url)
            insist_it_is_not_in(repr(app) + repr(app.settings) + str(app.settings))
        for parse in (postgres.parse, sqlite.parse):
            with refused():
                insist_it_is_not_in(repr(parse(url)))
        with refused():
            store: Any = make_store(url)
            insist_it_is_not_in(repr(store))
            if isinstance(store, PostgresStore) or not Path(store.location.path).parent.is_dir():
                asyncio.run(used(store))

    each()


@pytest.mark.thorough
def test_no_command_shows_a_password(elsewhere: Path, caplog: pytest.LogCaptureFixture) -> None:
    @settings(max_examples=tries(20, 20, 60), deadline=None)
    @given(urls(), st.sampled_from([["stats"], ["list", "--json"], ["migrate", "--status"], ["doctor"], ["version"]]))
    def each(url: str, command: list[str]) -> None:
        for arguments, environment in (
            ([*command, "--url", url], {}),
            (command, {"REDRIVE_URL": url.replace("\x00", "")}),
            (["show", url], {}),
            ([*command, url], {}),
        ):
            out = io.StringIO()
            with patch.dict(os.environ, environment), contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                run(arguments)
            if (
                environment
                or "--url" in arguments
                or ("@" in url and "//" in url and not set(url) & set("'\" \\\t\n\x00"))
            ):
                insist_it_is_not_in(out.getvalue())

    caplog.set_level(logging.DEBUG)
    each()
    insist_it_is_not_in(caplog.text)


@pytest.mark.parametrize(
    ("url", "dsn", "shown"),
    [
        ("postgres://ann:pw@db:5432/x", "postgresql://ann:pw@db:5432/x", "postgres://ann:…@db:5432/x"),
        ("postgresql+psycopg://ann@db/x", "postgresql://ann@db/x", "postgresql+psycopg://ann@db/x"),
        (
            "POSTGRESQL+ASYNCPG://db/x?ssl=require",
            "postgresql://db/x?sslmode=require",
            "postgresql+asyncpg://db/x?ssl=require",
        ),
        ("postgresql://db", "postgresql://db", "postgresql://db"),
        (
            "postgresql:///x?host=/run/pg&port=5433",
            "postgresql:///x?host=%2Frun%2Fpg&port=5433",
            "postgresql:///x?host=/run/pg&port=5433",
        ),
        (
            "postgresql://a@one:1,two:2/x?target_session_attrs=primary",
            "postgresql://a@one:1,two:2/x?target_session_attrs=primary",
            "postgresql://a@one:1,two:2/x?target_session_attrs=primary",
        ),
        ("postgresql://[::1]:5/x", "postgresql://[::1]:5/x", "postgresql://[::1]:5/x"),
        ("postgresql://u:p%40%2F%25@db/x", "postgresql://u:p%40%2F%25@db/x", "postgresql://u:…@db/x"),
        ("postgresql://u:p@p@db/x", "postgresql://u:p%40p@db/x", "postgresql:…"),
        (
            "postgresql://db/x?pgbouncer=1&connect_timeout=3",
            "postgresql://db/x",
            "postgresql://db/x?pgbouncer=1&connect_timeout=3",
        ),
        (
            "postgresql://db/x?options=-c%20jit%3Doff",
            "postgresql://db/x?options=-c+jit%3Doff",
            "postgresql://db/x?options=…",
        ),
    ],
)
def test_postgresql(url: str, dsn: str, shown: str) -> None:
    assert (postgres.parse(url).dsn, shown_url(url)) == (dsn, shown)
    assert isinstance(make_store(url), PostgresStore)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql://u:a/b@db/x", "a / or @ where none belongs"),
        ("postgresql://u:a#b@db/x", "cannot be understood"),
        ("postgresql://u:pw@[db/x", "no host and port"),
        ("postgresql://u:pw@db:99999/x", "a port that is none"),
        ("postgresql://db/x?oops=1", "an option that is not known"),
        ("postgresql://db/x?sslmode=on", "sslmode is one of"),
        ("postgresql://db/x?port=a", "a port that is none"),
        ("postgresql://db/x?channel_binding=require", "leave it out"),
        ("sqlite:///x.db?key=pw", "the only option is synchronous"),
        ("sqlite:///", "names no file"),
        ("sqlite://x.db", "not a SQLite URL"),
        ("jdbc:postgresql://db/x", "leave out jdbc:"),
        ("host=db password=pw", "looks like key=value pairs"),
        ("mysql://u:pw@db/x", "no store is known for the URL mysql:…"),
        ("pw:x", "no store is known for the URL …"),
    ],
)
def test_what_is_refused_is_said_with_what_to_write(url: str, says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        App(url)
    assert says in str(raised.value) and "pw" not in str(raised.value)
    assert raised.value.__cause__ is None and raised.value.__context__ is None


def test_a_url_of_every_spelling_connects(postgres_url: str) -> None:
    rest = postgres_url.partition("://")[2]
    for scheme in ("postgres", "postgresql", "postgresql+psycopg", "postgresql+asyncpg", "postgres+psycopg2"):
        asyncio.run(used(make_store(f"{scheme}://{rest}")))


def test_a_password_of_any_characters_reaches_the_server(postgres_url: str) -> None:
    """As the driver reads it back from what is made of the URL."""
    from asyncpg.connect_utils import _parse_connect_arguments  # type: ignore[import-untyped]

    password = f"a{SPECIAL.translate(dict.fromkeys(range(32)))}é%41"
    dsn = postgres.parse(f"postgresql://u:{quote(password, safe='')}@db/x").dsn
    unused = dict.fromkeys(signature(_parse_connect_arguments).parameters)
    sizes = dict.fromkeys([name for name in unused if name.startswith(("max_cach", "statement_cache"))], 0)
    _, parameters, _ = _parse_connect_arguments(**{**unused, **sizes, "dsn": dsn})
    assert parameters.password == password
