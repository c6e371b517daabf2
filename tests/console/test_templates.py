"""Templates and what belongs to them: topics that can be listened to, classes that are styled or found by a script."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from jinja2 import nodes

import redrive
import redrive_kit
from redrive.console.mount import TOPICS
from redrive.console.navigation import SECTIONS
from redrive.console.templates_env import environment
from redrive.features import installed, load
from redrive_kit.examples.orders import ORDERS

ROOT, KIT = Path(redrive.__file__).parent, Path(redrive_kit.__file__).parent
TEMPLATES = sorted((*ROOT.rglob("templates/**/*.html"), *KIT.rglob("templates/**/*.html")))
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


def _names(node: nodes.Node) -> set[str]:
    """The names that a piece of a template looks up, with those of the parts of the kit that it uses."""
    own = {one.name for one in node.find_all(nodes.Name) if one.ctx == "load"}
    return own | {f"kit.{one.attr}" for one in node.find_all(nodes.Getattr) if getattr(one.node, "name", None) == "kit"}


def _all_names(names: set[str], kit: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    while names - found:
        name = (names - found).pop()
        found.add(name)
        names = names | kit.get(name.removeprefix("kit."), set())
    return found


def test_live_regions_need_no_page() -> None:
    """A region is made once for all who look, so nobody's page is there: what asks for one fails in the state that
    shows it, be it ever so rare."""
    parse = environment().parse
    kit = {
        one.name: _names(one) for one in parse((ROOT / "console/templates/kit.html").read_text()).find_all(nodes.Macro)
    }
    assert "page" in _all_names({"kit.resume"}, kit), "by way of another part of the kit"
    sources = "".join(path.read_text(encoding="utf-8") for path in (*ROOT.rglob("*.py"), *KIT.rglob("*.py")))
    rendered = set(re.findall(r'render\(\s*"([\w/]+\.html)", operator', sources))
    rendered |= set(re.findall(r'"#\w+": "([\w/]+\.html)"', sources))
    rendered |= {f"regions/{path.name}" for path in (ROOT / "console/templates/regions").iterdir()}
    regions = [one for one in TEMPLATES if one.as_posix().partition("/templates/")[2] in rendered]
    assert len(regions) == len(rendered) > 20
    assert [one.name for one in regions if "page" in _all_names(_names(parse(one.read_text())), kit)] == []


def test_the_page_lists_every_key() -> None:
    page = (ROOT.parents[1] / "docs/console.md").read_text(encoding="utf-8")
    keys, names = re.search(r"\| `g` then (.*?) \| (.*?);", page).groups()  # type: ignore[union-attr]
    items = [item for section in SECTIONS for item in section.items if item.key]
    assert re.findall(r"`(\w)`", keys) == [item.key for item in items]
    assert names.split(", ") == [item.name.partition(" &")[0] for item in items]


def test_pages_listen_to_the_topics_that_there_are_and_to_all_of_them() -> None:
    """Else the whole stream of a page is refused, the menu's numbers and the banner with it."""
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
