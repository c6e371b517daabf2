"""Schedules: periodic tasks, their next and last runs."""

from __future__ import annotations

from fastapi import Response

from redrive.console.page import TheForm, ThePage
from redrive.console.routes import pages_router

router = pages_router()


@router.get("/schedules")
async def schedules(page: ThePage) -> Response:
    return await page.render("schedules.html", schedules=await page.operator.schedules.list())


@router.post("/schedules/run")
async def run_now(page: TheForm) -> Response:
    name = page.form.needed("name", "the schedule")
    task = await page.operator.schedules.run_now(name, page.form.text("reason"), page.form.text("once"))
    return page.go(page.link(f"/tasks/{task.id}"), f"Schedule {name} runs now, beside its plan.")


@router.post("/schedules/pause")
async def pause(page: TheForm) -> Response:
    name = page.form.needed("name", "the schedule")
    new = await page.operator.schedules.pause(name, page.form.text("reason"))
    return page.back(f"Schedule {name} is paused." if new else f"Schedule {name} was paused already.")


@router.post("/schedules/resume")
async def resume(page: TheForm) -> Response:
    name = page.form.needed("name", "the schedule")
    was = await page.operator.schedules.resume(name, page.form.text("reason"))
    return page.back(f"Schedule {name} is resumed." if was else f"Schedule {name} was not paused.")
