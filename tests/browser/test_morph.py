"""How one text of a region becomes another: the result is the wanted one, and what is kept is the same element."""

from __future__ import annotations

import pytest

from redrive.console.static_files import asset
from tests.browser.conftest import Sit
from tests.browser.worlds import World

pytestmark = [pytest.mark.anyio, pytest.mark.browser, pytest.mark.xdist_group("studio")]
MORPH = """async ([script, before, after]) => {
  const { morph } = await import(script);
  const region = document.createElement("div");
  region.innerHTML = before;
  document.body.append(region);
  for (const one of region.querySelectorAll("[data-key], [id]")) one.old = one.id || one.dataset.key;
  region.querySelector("[data-focus]")?.focus();
  morph(region, after);
  const wanted = document.createElement("div");
  wanted.innerHTML = after;
  const marked = [...region.querySelectorAll("[data-key], [id]")];
  const kept = marked.filter((one) => one.old === (one.id || one.dataset.key));
  const found = [region.innerHTML, wanted.innerHTML, kept.length, document.activeElement.textContent];
  region.remove();
  return found;
}"""
PAIRS = [
    ("", "<p>a</p>", 0),
    ("<p>a</p>", "", 0),
    ("<p>a</p>", "<p>b</p>", 0),
    ("<p class='x' title='t'>a</p>", "<p class='y'>a<b>c</b></p>", 0),
    ("<p>a</p><p>b</p>", "<ul><li>c</li></ul><p>b</p>", 0),
    ("<i data-key='1'>1</i><i data-key='2'>2</i>", "<i data-key='2'>2</i>", 1),
    ("<i data-key='2'>2</i>", "<i data-key='1'>1</i><i data-key='2'>2</i>", 1),
    ("<i data-key='1'>1</i> <i data-key='2'>2</i> <i data-key='3'>3</i>",
     "<i data-key='3'>3</i> <i data-key='1'>1!</i> <i data-key='2'>2</i>", 3),
    ("<i data-key='1'>1</i>\n<i data-key='2'>2</i>\n", "\n<b>x</b><i data-key='4'>4</i><i data-key='2'>2</i>", 1),
    ("<i data-key='1'>1</i><i data-key='1'>again</i>", "<i data-key='1'>one</i><i data-key='1'>two</i>", 1),
    ("<i id='a'>1</i><b id='b'></b>", "<b id='a'>1</b><b id='b'>x</b>", 1),
    ("text", "<!-- note -->text", 0),
    ("<svg><title>a</title><path d='M0 0'/></svg>", "<svg><title>b</title><path d='M1 1'/><path d='M2 2'/></svg>", 0),
]  # fmt: skip


async def test_one_becomes_the_other(studio: World, sit: Sit) -> None:
    async with sit(studio.base) as ann:
        await ann.go("/who")
        for before, after, kept in PAIRS:
            found, wanted, same, _ = await ann.page.evaluate(MORPH, [asset("morph.js"), before, after])
            assert found == wanted, before
            assert same >= kept, before
        # The focus moves along, and opened details stay open.
        before = "<p data-key='1'><a href='#1' data-focus>one</a></p><p data-key='2'><a href='#2'>two</a></p>"
        after = "<p data-key='2'><a href='#2'>two</a></p><p data-key='1'><a href='#1' data-focus>one!</a></p>"
        *_, focused = await ann.page.evaluate(MORPH, [asset("morph.js"), before, after])
        assert focused == "one!"
        opened = "<details open><summary>s</summary>a</details>"
        closed = "<details><summary>s</summary>b</details>"
        found, *_ = await ann.page.evaluate(MORPH, [asset("morph.js"), opened, closed])
        assert found == '<details open=""><summary>s</summary>b</details>'
