"""Before the door and behind it: signing in, each role, refusals and a store that is away, in both themes."""

from __future__ import annotations

from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe

from redrive import App
from redrive.errors import StoreUnavailable
from redrive.ops.access import Role
from tests.browser.conftest import Person, Sit, console, expect, token
from tests.browser.test_looks import NARROW, RULES, told
from tests.console.conftest import fail_some

pytestmark = [pytest.mark.anyio, pytest.mark.browser]


async def barriers(person: Person, name: str) -> list[str]:
    """What keeps somebody out of the page that is open, in either theme; and what makes it scroll sideways."""
    wrong = list[str]()
    for theme, rules in RULES.items():
        await person.wear(theme)
        wrong += [f"{name}, {theme}: {one}" for one in told(await Axe().run(person.page, options=rules))]
    before = person.page.viewport_size or {"width": 1280, "height": 900}
    await person.page.set_viewport_size({"width": NARROW["width"], "height": NARROW["height"]})
    wrong += [f"{name} is too wide: {one}" for one in await person.overflow()]
    await person.page.set_viewport_size(before)
    return wrong


async def test_signing_in_and_every_role_keep_nobody_out(app: App, sit: Sit) -> None:
    wrong = list[str]()
    async with console(app) as client, sit(client.base_url, bypass_csp=True, reduced_motion="reduce") as ann:
        ann.forgive("status of 401", "status of 403")
        [failed] = await fail_some(app, 1)
        secrets = {role: await token(app, role.label, role) for role in (Role.VIEWER, Role.OPERATOR)}
        await ann.go()
        wrong += await barriers(ann, "sign in")
        await ann.sign_in("rdt_wrong")
        await expect(ann.page.get_by_role("alert")).to_be_visible()
        wrong += await barriers(ann, "wrong token")
        for role, secret in secrets.items():
            await ann.sign_in(secret)
            await expect(ann.page.get_by_role("heading", name="Overview")).to_be_visible()
            for path in ("", f"/tasks/{failed}", "/failures/preview", "/queues"):
                await ann.go(path)
                wrong += await barriers(ann, f"{role.label} {path}")
            async with ann.page.expect_navigation():
                await ann.page.get_by_role("button", name="Sign out").click()
    assert wrong == []


async def test_refusals_keep_nobody_out(app: App, sit: Sit, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = list[str]()
    async with console(app) as client, sit(client.base_url, bypass_csp=True, reduced_motion="reduce") as vic:
        vic.forgive("status of 403", "status of 404", "status of 503")
        await vic.sign_in(await token(app, "vic", Role.VIEWER))
        store: Any = await app.store()

        async def away(*_: object, **__: object) -> None:
            raise StoreUnavailable("the database is away", hint="it is tried again")

        for path, title in (
            ("/settings", "You may not do that"),
            ("/nope", "There is no such thing"),
            ("/workers", "The store cannot be reached"),
        ):
            if path == "/workers":
                monkeypatch.setattr(store, "overview", away)
            await vic.go(path)
            await expect(vic.page.get_by_role("heading", name=title)).to_be_visible()
            wrong += await barriers(vic, title)
        monkeypatch.undo()
    assert wrong == []
