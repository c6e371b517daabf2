"""The desk of a bureau that rents out offices, written by other people."""

from tests.failures.corpus.bureau import texts
from tests.failures.corpus.bureau.texts import SEAT_LIMIT

import redrive

DEFAULT_REASON = "no reason was given"
ROOM_TAKEN = "room {room} is taken by {tenant} until {until}"


class Refused(ValueError):
    pass


class Ledger:
    NOT_BALANCED = "ledger %s does not balance: %s"

    def close(self, name, missing):
        raise RuntimeError(self.NOT_BALANCED % (name, missing))


def fail(message):
    raise RuntimeError(message)


def plan_limit(customer, plan, limit):
    raise RuntimeError(f"the plan {plan} is limited to {limit} rooms, {customer} asked for more")


def plan_gone(plan):
    raise ValueError(f"the plan {plan} is no longer sold")


def seats(workspace, n, plan):
    raise RuntimeError(SEAT_LIMIT % (workspace, n, plan))


def not_open(city, day):
    raise RuntimeError(texts.NOT_OPEN.format(city=city, day=day))


def taken(room, tenant, until):
    fail(ROOM_TAKEN.format(room=room, tenant=tenant, until=until))


def no_key(tenant, floor):
    fail(f"{tenant} has no key to {floor}")


def blocked(name, who):
    raise RuntimeError(texts.text("blocked", name=name, who=who))


def closed(name):
    raise RuntimeError(texts.text("closed", name=name))


def missing_papers(tenant, papers):
    raise ValueError(f"{tenant} still has to hand in: {', '.join(papers) or 'nothing'}")


def unpaid(invoices):
    raise RuntimeError("there are unpaid invoices: " + ", ".join(invoices))


def unpaid_rows(rows):
    raise RuntimeError(f"these rows could not be booked: {rows}")


def cancelled(tenant, reason):
    message = f"the contract of {tenant} was cancelled"
    if reason:
        message += f" because of {reason}"
    raise RuntimeError(message)


def moved(tenant, to=None):
    raise RuntimeError(f"{tenant} has moved out" + (f" and lives in {to} now" if to else ""))


def letter(path, printer):
    raise OSError(f"could not print {path} on {printer}")


def scan(name):
    raise Exception("the scan %s cannot be read" % name)


def badge(person, door):
    try:
        raise KeyError(person)
    except KeyError as error:
        raise RuntimeError("badge of {} does not open {}".format(person, door)) from error


def deposit(person, amount, currency):
    raise redrive.Fail("BUREAU_DEPOSIT", f"the deposit of {person} is short by {amount} {currency}")


def keys(person, count):
    raise redrive.Retry(f"{person} has not returned {count} key{'s' if count != 1 else ''} yet")


def two(tenant, what):
    if what:
        raise ValueError(f"{tenant} has no bank account")
    raise ValueError(f"{tenant} has no address")


def assertion(tenant, want, got):
    assert want == got, f"expected {want} desks for {tenant}, found {got}"


def refused(tenant, reason):
    raise Refused(f"{tenant}: {reason}")


def errors_of(form, problems):
    lines = [f"form {form} has {len(problems)} problem(s)"] + [f"- {field}: {what}" for field, what in problems]
    raise ValueError("\n".join(lines))


def neighbour(said):
    raise RuntimeError("the neighbour complained: " + said)


def status(order, state):
    raise RuntimeError(f"cannot ship order {order} in state {state}")


def approve(person, roles):
    raise RuntimeError(
        "%(person)s may not approve this, only %(roles)s may" % {"person": person, "roles": " or ".join(roles)}
    )
