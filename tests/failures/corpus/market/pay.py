"""Payments of the market."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, StrEnum

CURRENCIES = {"EUR": "Euro", "USD": "US Dollar", "GBP": "Pound Sterling", "CHF": "Swiss Franc", "SEK": "Swedish Krona"}
METHODS = ("credit card", "bank transfer", "gift voucher", "invoice", "direct-debit")
LIMITS = {"daily limit": 1000, "weekly limit": 5000, "single payment": 800}
TOO_OLD = "quote %s of %s is too old"
NOT_REFUNDABLE = "payment {id} cannot be refunded: {why}"


class Method(StrEnum):
    CARD = "credit card"
    WIRE = "bank transfer"
    VOUCHER = "gift voucher"


class State(Enum):
    OPEN = "still open"
    SETTLED = "settled"
    DISPUTED = "under dispute"


@dataclass
class Payment:
    id: str
    amount: Decimal
    currency: str
    method: Method
    state: State = State.OPEN


class PaymentError(Exception):
    """Something is wrong with a payment."""


class Declined(PaymentError):
    def __init__(self, payment: Payment, reason: str) -> None:
        self.payment = payment
        super().__init__(f"payment {payment.id} over {payment.amount} {payment.currency} declined: {reason}")


def capture(payment: Payment, authorised: Decimal) -> None:
    if payment.amount > authorised:
        raise PaymentError(
            f"cannot capture {payment.amount} {CURRENCIES[payment.currency]}: only {authorised} authorised"
        )
    if payment.state is State.SETTLED:
        raise PaymentError(f"payment {payment.id} was captured already")
    raise PaymentError("capture of " + payment.id + " by " + payment.method + " has not been confirmed")


def refund(payment: Payment, days: int) -> None:
    if days > 90:
        raise ValueError(NOT_REFUNDABLE.format(id=payment.id, why="older than 90 days"))
    if payment.state is State.DISPUTED:
        raise ValueError(NOT_REFUNDABLE.format(id=payment.id, why="under dispute"))
    raise ValueError(NOT_REFUNDABLE.format(id=payment.id, why="already refunded"))


def route(payment: Payment, acquirer: str) -> None:
    raise RuntimeError(f"no route for {payment.method} payments in {payment.currency} through {acquirer}")


def route_method(number: int, country: str) -> None:
    method = METHODS[number % len(METHODS)]
    raise RuntimeError(f"Payment by {method} is not offered in {country}")


def limit(customer: str, amount: int, number: int) -> None:
    name, most = list(LIMITS.items())[number % len(LIMITS)]
    raise ValueError("%s exceeds the %s of %d with %d" % (customer, name, most, amount))


def quote(number: int, customer: str) -> None:
    raise ValueError(TOO_OLD % (number, customer))


def convert(amount: Decimal, source: str, target: str) -> None:
    raise LookupError(f"No rate from {CURRENCIES.get(source, source)} to {CURRENCIES.get(target, target)} on file")


def dispute(payment: Payment, by: str, note: str | None) -> None:
    message = f"{by} disputes payment {payment.id}"
    if note:
        message += f" ({note})"
    raise RuntimeError(message)


def reconcile(day: str, expected: Decimal, got: Decimal) -> None:
    raise AssertionError(f"{day}: expected {expected}, the bank booked {got}")
