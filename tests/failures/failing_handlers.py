"""Handlers that fail in every way, for every place a handler can run in."""

from __future__ import annotations

from redrive import Classification, Context, Fail


class Declined(Exception):
    pass


def fail(ctx: Context, customer: str) -> None:
    _charge(customer)


def _charge(customer: str) -> None:
    raise Fail("SHOP_CLOSED", f"no more orders of {customer} today", failure_type="model_error")


async def fail_on_loop(ctx: Context, customer: str) -> None:
    _charge(customer)


def give_back(ctx: Context, customer: str) -> Fail:
    return Fail("SHOP_CLOSED", f"no more orders of {customer} today")


def decline(ctx: Context, customer: str) -> None:
    raise Declined(customer)


def judge(error: BaseException) -> Classification | None:
    return Classification("card", "param_error", retryable=False) if isinstance(error, Declined) else None


def name_it(error: BaseException) -> str | None:
    return "declined" if isinstance(error, Declined) else None
