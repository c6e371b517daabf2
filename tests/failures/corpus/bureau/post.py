"""The post room, written by yet other people."""

import redrive

TEMPLATES = {"lost": "Parcel {0} for {1} got lost in {2}", "dup": "Parcel {0} was scanned twice by {1}"}
_TOO_HEAVY = "%s is too heavy for the lift (%s kg)"


def say(level, text, *args):
    return f"[{level}] " + text % args


class Carrier:
    prefix = "carrier refused"

    def __init__(self, name):
        self.name = name

    def reject(self, parcel, why=None):
        detail = f": {why}" if why else ""
        raise RuntimeError(f"{self.prefix} parcel of {parcel}{detail} (carrier {self.name})")


def lost(parcel, owner, place):
    raise LookupError(TEMPLATES["lost"].format(parcel, owner, place))


def lost_bare(parcel, owner, place):
    raise RuntimeError(TEMPLATES["lost"].format(parcel, owner, place))


def scanned_twice(parcel, who):
    raise RuntimeError(TEMPLATES["dup"].format(parcel, who))


def heavy(parcel, kilos):
    raise ValueError(_TOO_HEAVY % (parcel, kilos))


def warned(street, number):
    raise RuntimeError(say("WARN", "no letter box at %s %s", street, number))


def check(letter):
    problems = []
    if not letter.get("stamp"):
        problems.append("stamp is missing")
    if not letter.get("to"):
        problems.append("receiver is missing")
    if problems:
        raise ValueError(f"letter of {letter['from']} cannot be sent: {'; '.join(problems)}")


def which(names):
    n = len(names)
    raise RuntimeError(f"{n} letter{'' if n == 1 else 's'} could not be delivered ({', '.join(names)})")


def either(person, gone):
    raise RuntimeError(f"{person} is " + ("not known here" if gone else "on holiday"))


def forward(person, to):
    if to is None:
        raise redrive.Fail("POST_FORWARD", f"nobody knows where {person} lives now")
    raise redrive.Fail("POST_FORWARD", f"letters of {person} are kept until {to} answers")


def count(shelf, expected, found):
    if expected != found:
        raise RuntimeError("shelf {shelf}: expected {expected} letters, found {found}".format(**locals()))


def repeat(error):
    try:
        raise ConnectionAbortedError(error)
    except OSError as first:
        raise RuntimeError(f"printer gave up after retries, last error: {first}") from None


def rule(name, value, allowed):
    raise ValueError("%r is not a valid %s, use one of %s" % (value, name, "|".join(allowed)))


def strike(city, until):
    raise RuntimeError("The post in {} is on strike{}".format(city, "" if until is None else " until {}".format(until)))
