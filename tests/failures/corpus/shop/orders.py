"""The application's own failures: verdicts, bare exceptions, mistakes."""

import redrive


def find_customer(number):
    raise redrive.Fail("TASK_ENTITY_NOT_FOUND", f"customer {number} does not exist")


def find_both(customer, invoice):
    if invoice:
        raise redrive.Fail("TASK_ENTITY_NOT_FOUND", f"invoice {invoice} of customer {customer} does not exist")
    raise redrive.Fail("TASK_ENTITY_NOT_FOUND", f"no such customer: {customer}")


def upload(path, target):
    raise RuntimeError(f"could not copy {path} to {target}")


def route(address):
    raise RuntimeError(f"no route to {address} from this zone")


def check_rows(rows):
    raise ValueError(f"rows {rows} are out of range")


def check_commit(commit, branch):
    raise Exception(f"commit {commit} is not on branch `{branch}`")


def allow(user, what):
    if what == "refund":
        raise RuntimeError(f"user {user} may not refund order {len(user)}")
    raise RuntimeError(f"user {user} may not see order {len(user)}")


def ship(order):
    raise redrive.Fail("TASK_PRECONDITION_FAILED", f"order {order} is locked")


def bill(order):
    raise redrive.Fail("TASK_PRECONDITION_FAILED", f"order {order} is locked")


def refuse(order):
    return redrive.Fail("SHOP_CLOSED", f"order {order} came after closing time")


def wait_for(order, step):
    if step == "payment":
        raise redrive.Retry(f"order {order} waits for its payment")
    raise redrive.Retry(f"order {order} waits for its parcel number")


def provider_said(text):
    raise RuntimeError(text)


def due(date):
    raise ValueError("due date %s lies before order date %s" % (date, "2026-01-01"))


def quota(used, limit):
    raise RuntimeError("used {} of {} MB".format(used, limit))


def declared(cause, text):
    raise redrive.Fail("SHOP_UPSTREAM", text, cause=cause)


def total(order):
    return sum(line["price"] * line["count"] for line in order["lines"])


def discount(order):
    return order["total"] / order["people"]


def nth(lines, n):
    return lines[n]


def mail(customer):
    return customer.address.lower()


def walk(tree, depth):
    if depth == 0:
        return tree["leaf"][17]
    return walk(tree, depth - 1)


def endless(n):
    return even(n)


def even(n):
    return odd(n + 1)


def odd(n):
    return even(n + 1)


def parse_amount(text):
    return int(text)


def cart(text):
    try:
        return int(text)
    except ValueError as error:
        raise LookupError(f"cart {text}") from error
