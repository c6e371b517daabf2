"""Which URL is which sink."""

from __future__ import annotations

import pytest

from redrive.errors import ConfigError
from redrive.outbox.sinks import sink_from_url


def test_sinks_by_url() -> None:
    for url in ("ftp://a:secret@b/c", "search.db"):
        with pytest.raises(ConfigError, match="there is no sink") as refused:
            sink_from_url(url)
        assert "secret" not in str(refused.value)
    with pytest.raises(ConfigError, match="names no file"):
        sink_from_url("fts5://search.db")
