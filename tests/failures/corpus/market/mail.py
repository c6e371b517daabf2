"""Letters, mails and accounts of the market."""

from __future__ import annotations

from typing import Any

TEMPLATES = {
    "welcome": ("Welcome to the market", "welcome_mail.html"),
    "invoice": ("Your invoice", "invoice-mail.html"),
    "reminder": ("Payment reminder", "reminder mail.html"),
    "lost": ("Lost password", "lost_password.html"),
}
ROLES = frozenset({"shop owner", "read-only", "auditor", "super_user"})


class MailError(RuntimeError):
    pass


def render(template: str, placeholder: str) -> None:
    subject, file = TEMPLATES[template]
    raise MailError(f"{file}: placeholder {placeholder} has no value (subject: {subject})")


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


def merge(first: dict[str, Any], second: dict[str, Any]) -> None:
    raise ValueError(f"{first['name']} and {second['name']} cannot be merged: both have orders")


def greet(salutation: str, name: str) -> None:
    known = ("Mr", "Mrs", "Dr. med.", "Prof. Dr.")
    raise ValueError(f"{salutation if salutation in known else 'Guest'} {name} has no address")
