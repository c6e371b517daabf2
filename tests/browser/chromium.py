"""Finds a Chromium for the tests, or gets one: ``python -m tests.browser.chromium`` (``./dev browser``).

The system's own is taken where there is one. Otherwise Playwright's headless shell is put below the checkout: no root,
nothing outside of it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHOSEN = "REDRIVE_TEST_BROWSER"
FOLDER = Path(__file__).parents[2] / ".tools" / "browsers"
NONE = f"no Chromium was found: ./dev browser gets one, or name one with {CHOSEN}=/path/to/chromium"


def find() -> str | None:
    """Returns the program to start: the one that was named, the system's, or the one that was got for the tests."""
    chosen = os.environ.get(CHOSEN)
    if chosen:
        return shutil.which(chosen)
    named = next((found for name in NAMES if (found := shutil.which(name))), None)
    return named or _own()


def _own() -> str | None:
    """Returns the latest that was put below the checkout."""
    shells = [*FOLDER.glob("chromium*-*/*/chrome-headless-shell*"), *FOLDER.glob("chromium*-*/*/headless_shell*")]
    programs = [file for file in shells if file.is_file() and os.access(file, os.X_OK)]
    return str(max(programs, key=lambda file: file.stat().st_mtime)) if programs else None


def switches() -> list[str]:
    """Returns what it is started with: no name but this machine's leads anywhere; root has no sandbox."""
    alone = ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"]
    return [*alone, "--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else alone


def get() -> str | None:
    """Returns a browser; downloads one where there is none."""
    if found := find():
        return found
    where = {**os.environ, "PLAYWRIGHT_BROWSERS_PATH": str(FOLDER)}
    subprocess.run([sys.executable, "-m", "playwright", "install", "--only-shell", "chromium"], env=where, check=False)
    return _own()


def main() -> int:
    found = get()
    if found is None:
        print(f"could not get a Chromium; install one (apt install chromium), or name one with {CHOSEN}")
        return 1
    from playwright.sync_api import Error, sync_playwright

    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=found, args=switches())
        except Error as error:
            print(f"{found} does not start: {error.message.splitlines()[0]}")
            print("libraries that it needs may be missing: playwright install-deps names them")
            return 1
        print(f"{found}: Chromium {browser.version}")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
