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
INSTEAD = f"""One of these helps:
- the system's own: apt install chromium (or another name on PATH), or {CHOSEN}=/path/to/chromium
- behind a proxy: HTTPS_PROXY=http://…; with a mirror of cdn.playwright.dev: PLAYWRIGHT_DOWNLOAD_HOST=https://…
- without a network: copy {FOLDER} from a machine on which ./dev browser works, of the same kind and Playwright"""
# There is no GPU to draw with: one that is made up costs more than to draw without.
PLAIN = ["--disable-gpu", "--disable-gpu-rasterization", "--disable-software-rasterizer"]
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
    alone = ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost", *PLAIN]
    return [*alone, "--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else alone


class NotGot(Exception):
    """No browser could be had; says why, and what to do."""


def get() -> str:
    """Returns a browser; downloads one where there is none."""
    if found := find():
        return found
    if chosen := os.environ.get(CHOSEN):
        raise NotGot(f"{CHOSEN} names {chosen}, and there is no such program")
    print(f"no Chromium is on PATH; getting Playwright's into {FOLDER}", flush=True)
    where = {**os.environ, "PLAYWRIGHT_BROWSERS_PATH": str(FOLDER)}
    command = [sys.executable, "-m", "playwright", "install", "--only-shell", "chromium"]
    done = subprocess.run(command, env=where, check=False, capture_output=True, text=True)
    if got := _own():
        return got
    raise NotGot(f"the download failed: {_reason(done.stdout + done.stderr)}\n{INSTEAD}")


def _reason(said: str) -> str:
    """Returns what is wrong, of many words that say that something is, and once what."""
    errors = [line.partition("Error: ")[2].strip() for line in said.splitlines() if "Error: " in line]
    causes = [one for one in errors if not one.startswith(("Failed to", "Download failure"))]
    return (causes or errors or [said.strip()[-300:] or "Playwright said nothing"])[0]


def main() -> int:
    try:
        found = get()
    except NotGot as error:
        print(f"there is no Chromium, so the console will not be tested: {error}")
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
