"""Templates and what belongs to them: topics that can be listened to, classes that are styled or found by a script."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

import redrive
from redrive.console.navigation import SECTIONS
from redrive.console.topics import TOPICS
from redrive.examples.orders import ORDERS
from redrive.features import installed, load

ROOT = Path(redrive.__file__).parent
TEMPLATES = sorted(ROOT.rglob("templates/**/*.html"))
STATIC = files("redrive.console") / "static"
# What can be listened to: the console's own, and what features bring.
LIVE = {*TOPICS, *(name for one in (*installed(), ORDERS) if one.pages for name in load(one.pages).topics)}
_TOPICS = re.compile(r"{% block topics %}(.*?){% endblock %}")
_TAGS = re.compile(r"{%.*?%}|{{.*?}}")
_CLASSES = re.compile(r'class="([^"]*)"')


def _static(ending: str) -> str:
    return "".join(one.read_text() for one in STATIC.iterdir() if one.name.endswith(ending))


def _topics(template: Path) -> set[str]:
    """The topics of a page, each without its argument."""
    blocks = _TOPICS.findall(template.read_text(encoding="utf-8"))
    listed = [one.partition(":")[0] for block in blocks for one in _TAGS.sub("", block).split(",")]
    return {one for one in listed if one}


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_pages_listen_to_topics_that_there_are(template: Path) -> None:
    """Else the whole stream of the page is refused, the menu's numbers and the banner with it."""
    assert _topics(template) <= LIVE, "not in console/topics.py"


def test_the_page_lists_every_key() -> None:
    page = (ROOT.parents[1] / "docs/console.md").read_text(encoding="utf-8")
    keys, names = re.search(r"\| `g` then (.*?) \| (.*?);", page).groups()  # type: ignore[union-attr]
    items = [item for section in SECTIONS for item in section.items if item.key]
    assert re.findall(r"`(\w)`", keys) == [item.key for item in items]
    assert names.split(", ") == [item.name.partition(" &")[0] for item in items]


def test_every_topic_is_listened_to() -> None:
    assert {one for template in TEMPLATES for one in _topics(template)} == LIVE


def test_classes_are_styled_or_found_by_a_script() -> None:
    known = set(re.findall(r"\.([a-z][\w-]*)", _static(".css"))) | set(re.findall(r"[a-z][\w-]*", _static(".js")))
    used = {
        (name, template.name)
        for template in TEMPLATES
        for classes in _CLASSES.findall(template.read_text(encoding="utf-8"))
        if "{" not in classes
        for name in classes.split()
    }
    assert sorted(one for one in used if one[0] not in known) == []
