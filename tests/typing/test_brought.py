"""A type checker knows of what features put on an application, and no more than that."""

from __future__ import annotations

from typing import get_type_hints

from redrive import app_types
from redrive.features import installed, load


def test_what_is_declared_is_what_features_bring() -> None:
    brought = {name: load(at) for feature in installed() for name, at in feature.services.items()}
    declared = get_type_hints(app_types.App)
    own = {name: declared[name] for name in app_types.App.__annotations__ if name != "sync"}
    assert own == brought
    assert set(app_types.SyncApp.__annotations__) == set(brought)
