"""Makes the pictures of the documents anew: ``python -m tests.browser.pictures`` (``./dev pictures``)."""

from __future__ import annotations

import asyncio
import base64
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import httpx
from playwright.async_api import Browser, async_playwright

from redrive.settings import Options
from tests.browser import chromium
from tests.browser.conftest import HOME, console
from tests.browser.studio import furnish, make_studio
from tests.browser.worlds import world

FOLDER = Path(__file__).parents[2] / "docs" / "images"
QUALITY = 60  # of a photograph; letters are clear from 50 on
SETTLED_MS = 2500  # the first news of a page have come


@dataclass(slots=True, frozen=True)
class Picture:
    """``docs/images/console-NAME.webp``: what of which page, in which theme."""

    name: str
    path: str
    height: int = 900
    width: int = 1360
    dark: bool = False


async def pictures(client: httpx.AsyncClient) -> list[Picture]:
    pages = (await world(client)).pages
    listed = (await client.get(f"{HOME}/operations")).text
    stopped = next(row for row in listed.split("<tr") if '"tag stopped"' in row)
    operation = re.search(r'href="/ops/queue(/operations/[0-9a-f-]+)"', stopped)
    assert operation
    return [
        Picture("overview", "", 1270),
        Picture("overview-dark", "", 1270, dark=True),
        Picture("failures", "/failures", 860),
        Picture("task", pages["task"]),
        Picture("operation", operation[1]),
        Picture("alerts", "/alerts", 620),
        Picture("batch", pages["processing"], 960),
        Picture("outbox", "/outbox/catalogue", 1180),
        Picture("account", "/ledger/studio", 1000),
        Picture("phone", "", 844, 390),
    ]


async def take(browser: Browser, base: str, picture: Picture) -> bytes:
    context = await browser.new_context(
        viewport={"width": picture.width, "height": picture.height},
        color_scheme="dark" if picture.dark else "light",
        reduced_motion="reduce",
        device_scale_factor=2 if picture.width < 500 else 1,
    )
    page = await context.new_page()
    await page.goto(f"{base}{HOME}{picture.path}")
    await page.wait_for_timeout(SETTLED_MS)
    wire = await context.new_cdp_session(page)
    shot = await wire.send("Page.captureScreenshot", {"format": "webp", "quality": QUALITY})
    await context.close()
    return base64.b64decode(shot["data"])


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "studio.db"
        made = make_studio(f"sqlite:///{file}")
        await furnish(made, file, 25)
        worker = made.worker(await made.store(), Options(concurrency=10))
        working = asyncio.create_task(worker.run())
        async with console(made) as client, async_playwright() as playwright:
            program = chromium.find()
            if program is None:
                sys.exit(chromium.NONE)
            browser = await playwright.chromium.launch(executable_path=program, args=chromium.switches())
            for picture in await pictures(client):
                target = FOLDER / f"console-{picture.name}.webp"
                target.write_bytes(await take(browser, str(client.base_url).rstrip("/"), picture))
                print(f"{target.relative_to(FOLDER.parents[1])}: {target.stat().st_size // 1024} kB")
            await browser.close()
            worker.stop()
            await working


if __name__ == "__main__":
    asyncio.run(main())
