"""Files, programs and what is in them."""

import json
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


def missing(name):
    raise type(f"No{name}", (LookupError,), {})(f"there is no {name}")


def read_order(path):
    return Path(path).read_text()


def parse_order(text):
    return json.loads(text)


def check_order(document):
    return Order.model_validate(document)


def convert(command, timeout=5):
    return subprocess.run(command, check=True, capture_output=True, timeout=timeout)
