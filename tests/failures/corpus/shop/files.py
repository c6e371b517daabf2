"""Files, programs and what is in them."""

import json
import os
import subprocess
from pathlib import Path

import pydantic


class Line(pydantic.BaseModel):
    sku: str
    count: int


class Order(pydantic.BaseModel):
    customer: str
    lines: list[Line] = []


def read_order(path):
    return Path(path).read_text()


def store_order(path):
    with open(path, "w") as file:
        file.write("x")


def parse_order(text):
    return json.loads(text)


def check_order(document):
    return Order.model_validate(document)


def convert(command, timeout=5):
    return subprocess.run(command, check=True, capture_output=True, timeout=timeout)


def link_to_itself(folder, name):
    path = os.path.join(folder, name)
    if not os.path.islink(path):
        os.symlink(path, path)
    return open(path)
