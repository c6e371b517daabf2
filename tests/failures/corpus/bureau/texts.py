"""Messages of the bureau, kept in one place for the translators."""

SEAT_LIMIT = "workspace %s cannot have more than %d seats on the plan %s"
NOT_OPEN = "the branch in {city} is not open on {day}"
MESSAGES = {
    "blocked": "account {name} is blocked by {who}",
    "closed": "account {name} was closed by its owner",
}


def text(key, **values):
    return MESSAGES[key].format(**values)
