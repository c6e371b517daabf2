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


class Stock(pydantic.BaseModel):
    counts: dict[str, int] = {}
    shelves: dict[str, list[Line]] = {}


class BadVoucher(Exception):
    def __init__(self, code):
        super().__init__(f"voucher {code} is not valid")
        self.code = code


def check_stock(data):
    return Stock.model_validate(data)


def redeem(code):
    raise BadVoucher(code)


def missing(name):
    raise type(f"No{name}", (LookupError,), {})(f"there is no {name}")


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
