"""On a phone: the bar has room for all that it says, and covers nothing of the page, whatever is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from redrive import App
from redrive.ops.access import Role
from tests.browser.conftest import Sit, console, expect, token

pytestmark = [pytest.mark.anyio, pytest.mark.browser]
FILE = '[connections.main]\nurl = "sqlite:///main.db"\n[connections.insights_eu_west]\nurl = "sqlite:///insights.db"\n'
NARROW = {"width": 390, "height": 844}
# What of the page lies below what stands over it, and what of the bar lies over each other.
COVERED = """() => {
  const box = (one) => one.getBoundingClientRect();
  const over = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  const title = box(document.querySelector("h1"));
  const parts = [".menu-toggle", ".jump", ".where .tag:first-child", ".where .tag:last-child", ".live", ".theme",
    ".who-name .name", ".who-name .tag", ".leave"].map((one) => [one, document.querySelector(".bar " + one)]);
  const found = parts.filter(([, one]) => !one || !one.checkVisibility()).map(([name]) => `${name} is not there`);
  const shown = parts.filter(([, one]) => one).map(([name, one]) => [name, box(one)]);
  for (const [name, one] of shown) {
    if (one.right > innerWidth || one.left < 0) found.push(`${name} is outside`);
    for (const [other, its] of shown) if (name < other && over(one, its)) found.push(`${name} and ${other}`);
  }
  for (const one of document.querySelectorAll(".bar, .lost:not([hidden]), .as-of, #alert-banner"))
    if (over(box(one), title)) found.push(`${one.className || one.id} covers the title`);
  return found;
}"""


async def test_the_bar_has_room_for_everything(sit: Sit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRIVE_ENV", "production")
    (tmp_path / "redrive.toml").write_text(FILE)
    app = App()
    async with console(app) as client, sit(client.base_url, viewport=NARROW) as ann:
        await app.at("insights_eu_west").migrate()
        await ann.sign_in(await token(app, "wilhelmina.berg", Role.OPERATOR))
        for path in ("", "/@insights_eu_west/failures"):
            await ann.go(path)
            await ann.is_live()
            assert await ann.page.evaluate(COVERED) == [], path
            search = await ann.page.get_by_role("searchbox").first.bounding_box()
            assert search is not None and search["width"] > 200
            assert await ann.overflow() == []
        ann.forgive("ERR_", "Failed to load", "net::")
        await ann.context.set_offline(True)
        client.live.close()  # type: ignore[attr-defined]
        await expect(ann.page.locator(".lost")).to_be_visible()
        assert await ann.page.evaluate(COVERED) == []
