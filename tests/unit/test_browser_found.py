"""Where no browser for the tests can be had, it is said why, and what to do."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.browser import chromium

SAID = """Downloading Chrome Headless Shell
Failed to install browsers
Error: Failed to download Chrome Headless Shell, caused by
Error: Download failure, code=1
    at ChildProcess.<anonymous>
Error: getaddrinfo ENOTFOUND cdn.playwright.dev
    at GetAddrInfoReqWrap.onlookupall
"""


def test_a_download_that_fails_says_what_helps(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*_: Any, **__: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 1, "", SAID)

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(chromium.CHOSEN, raising=False)
    monkeypatch.setattr(chromium, "FOLDER", tmp_path)
    monkeypatch.setattr(subprocess, "run", run)
    assert chromium.main() == 1
    said = capsys.readouterr().out
    assert "the download failed: getaddrinfo ENOTFOUND cdn.playwright.dev" in said and "HTTPS_PROXY" in said
    assert "the console will not be tested" in said and chromium.CHOSEN in said


def test_one_that_was_named_and_is_not_there_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(chromium.CHOSEN, "/nowhere/chromium")
    with pytest.raises(chromium.NotGot, match="names /nowhere/chromium"):
        chromium.get()
