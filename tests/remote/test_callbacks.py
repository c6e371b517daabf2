"""Signed addresses for callbacks: only ours are taken, for the item they were made for, and not for ever."""

from __future__ import annotations

import pytest

from redrive.errors import ConfigError
from redrive.remote.callbacks import LIFETIME, Callback, CallbackRefused, Callbacks
from redrive.settings import load_settings

PATH = "/api/batches/callbacks"
OURS = Callbacks("https://here.example/", "0123456789abcdef0123", PATH)
ITEM = Callback("0197f0c2-8d1e-7c3a-9b1f-2f6f0c9d1a2b", 2)
NOW = 1_800_000_000.0


def test_an_address_leads_back_to_its_item() -> None:
    url = OURS.url(ITEM, NOW)
    assert url.startswith(f"https://here.example{PATH}/{ITEM.item}.2.")
    assert OURS.verify(url.rpartition("/")[2], NOW + LIFETIME) == ITEM


def test_what_is_forged_changed_or_old_is_refused() -> None:
    token = OURS.token(ITEM, NOW)
    item, round_, until, signature = token.split(".")
    other = Callbacks("https://here.example", "another secret of ours", PATH)
    bad = [
        other.token(ITEM, NOW),
        f"{item}.3.{until}.{signature}",
        f"{item}.{round_}.{int(until) + 1}.{signature}",
        f"{item[:-1]}c.{round_}.{until}.{signature}",
        f"{token}x",
        token[:-1],
        "",
        "a.b.c.d",
        "é" * 50,
    ]
    for one in bad:
        with pytest.raises(CallbackRefused, match="not valid"):
            OURS.verify(one, NOW)
    with pytest.raises(CallbackRefused):
        OURS.verify(token, NOW + LIFETIME + 1)


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 16"):
        Callbacks("https://here.example", "short", PATH)


def test_an_installation_without_a_public_address_has_none() -> None:
    assert Callbacks.of(load_settings(), PATH) is None
    known = load_settings(callback_base_url="https://here.example/shop", callback_secret="0123456789abcdef0123")
    made = Callbacks.of(known, PATH)
    assert made is not None and made.url(ITEM, NOW) == OURS.url(ITEM, NOW).replace("example", "example/shop")
