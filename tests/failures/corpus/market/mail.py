"""Letters, mails and accounts of the market."""

from __future__ import annotations

from typing import Any

from tests.failures.corpus.market import texts

TEMPLATES = {
    "welcome": ("Welcome to the market", "welcome_mail.html"),
    "invoice": ("Your invoice", "invoice-mail.html"),
    "reminder": ("Payment reminder", "reminder mail.html"),
    "lost": ("Lost password", "lost_password.html"),
}
SENDERS = ["no-reply@market.example", "billing desk", "Market Support", "news-letter"]
ROLES = frozenset({"shop owner", "read-only", "auditor", "super_user"})
TEXTS = {
    "de": "Anhang {} ist größer als {} MB",
    "en": "attachment {} is larger than {} MB",
}
PLACEHOLDERS = ["first_name", "last name", "order-number", "total"]


class MailError(RuntimeError):
    pass


def render(template: str, placeholder: str) -> None:
    subject, file = TEMPLATES[template]
    raise MailError(f"{file}: placeholder {placeholder} has no value (subject: {subject})")


def render_known(number: int) -> None:
    placeholder = PLACEHOLDERS[number % len(PLACEHOLDERS)]
    raise ValueError(f"unknown placeholder {placeholder}")


def send(sender: str, to: list[str]) -> None:
    if not to:
        raise MailError("nobody to send to, sender was " + sender)
    raise MailError("sender {0} is not allowed to write to {1}".format(sender, ", ".join(to)))


def attach(name: str, size: int, language: str) -> None:
    raise ValueError(TEXTS[language].format(name, size))


def unsubscribe(who: str, lists: list[str]) -> None:
    raise LookupError(
        f"{who} is on no list" if not lists else f"{who} is still on {len(lists)} lists: {' / '.join(lists)}"
    )


def permit(who: str, number: int, action: str) -> None:
    role = sorted(ROLES)[number % len(ROLES)]
    raise PermissionError(f"{who} ({role}) may not {action}")


def invite(who: str, by: str, seats: int) -> None:
    text = "invitation of %s by %s is void" % (who, by)
    if seats == 0:
        text += ", no seats left"
    elif seats == 1:
        text += ", 1 seat left"
    else:
        text += f", {seats} seats left"
    raise ValueError(text)


def login(who: str, tries: int) -> None:
    if tries > 5:
        raise Exception("account of " + who + " is locked after " + str(tries) + " tries")
    raise Exception("wrong password for " + who)


def merge(first: dict[str, Any], second: dict[str, Any]) -> None:
    raise ValueError(f"{first['name']} and {second['name']} cannot be merged: both have orders")


def greet(salutation: str, name: str) -> None:
    known = ("Mr", "Mrs", "Dr. med.", "Prof. Dr.")
    raise ValueError(f"{salutation if salutation in known else 'Guest'} {name} has no address")


def profile(field: str, value: str) -> None:
    rules = {"first name": "letters only", "birth_date": "a date", "phone-number": "digits and +"}
    raise ValueError(f"{value} does not match the rule of {field}: {rules[field]}")


def basket(who: str, language: str) -> None:
    texts.fail(texts.MESSAGES[language]["basket.old"], who=who)
