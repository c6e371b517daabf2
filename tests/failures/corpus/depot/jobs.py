"""Jobs of a depot, written by other people."""

import base64
import csv
import dataclasses
import enum
import gzip
import importlib
import ipaddress
import pickle
import shutil
import smtplib
import socket
import struct
import xml.etree.ElementTree
import zoneinfo

import requests

import redrive


class Lane(enum.Enum):
    NORTH = 1


class DepotError(Exception):
    pass


class PodGone(DepotError):
    pass


@dataclasses.dataclass
class Crate:
    weight: float


def pod(name, node):
    raise RuntimeError(f"pod {name} was evicted from {node}: node is under memory pressure")


def image(ref, digest):
    raise RuntimeError(f"cannot pull {ref}@{digest}")


def token(jwt):
    raise ValueError(f"token {jwt} has expired")


def deadline(duration, limit):
    raise RuntimeError(f"took {duration}, more than the {limit} allowed")


def price(amount, currency):
    raise redrive.Fail("DEPOT_PRICE", f"price {amount} {currency} is not plausible")


def weigh(crate, kilos):
    raise redrive.Fail(
        "DEPOT_WEIGHT", "crate {!r} weighs {:.2f} kg, too much for lane {lane}".format(crate, kilos, lane="N")
    )


def chinese(order, city):
    raise RuntimeError(f"订单 {order} 无法送达 {city}")


def chinese_paid(order):
    raise RuntimeError(f"订单 {order} 尚未付款")


def multiline(rows):
    raise RuntimeError("import failed:\n" + "\n".join(f"  row {n}: {text}" for n, text in rows))


def key_values(**values):
    raise Exception("refused: " + " ".join(f"{k}={v}" for k, v in values.items()))


def gone(name):
    raise PodGone(name)


def gone_or(name):
    raise DepotError(name)


def provider(document):
    if "error" in document:
        raise RuntimeError(document["error"]["message"])
    return document


def scanner(data):
    return struct.unpack("<IHH", data)


def label(text):
    return base64.b64decode(text, validate=True)


def manifest(text):
    return xml.etree.ElementTree.fromstring(text)


def unzip(data):
    return gzip.decompress(data)


def address(text):
    return ipaddress.ip_address(text)


def restore(data):
    return pickle.loads(data)


def plugin(name):
    return importlib.import_module(f"depot_plugins_{name}")


def copy(source, target):
    return shutil.copy(source, target)


def lane(value):
    return Lane(value)


def zone(name):
    return zoneinfo.ZoneInfo(name)


def crate(**values):
    return Crate(**values)


def lines(text):
    return list(csv.reader(text.splitlines(), strict=True))


def mail(port, to):
    with smtplib.SMTP("127.0.0.1", port, timeout=1) as server:
        server.sendmail("a@example.com", to, "x")


def mail_daily(port):
    return smtplib.SMTP("127.0.0.1", port, timeout=1)


def probe(port, path):
    with socket.create_connection(("127.0.0.1", port), timeout=1) as wire:
        wire.sendall(path.encode())


def probe_all(port):
    return [socket.create_connection(("127.0.0.1", port), timeout=1) for _ in range(2)]


def notify(url):
    try:
        requests.post(url, timeout=0.3).raise_for_status()
    except requests.RequestException as error:
        raise DepotError(f"could not notify {url}") from error


def route(stops):
    return {stop["name"]: stop["place"]["lat"] for stop in stops}


def late(order, hours):
    return redrive.Fail("DEPOT_LATE", f"order {order} is {hours} h late")


def held(order, by):
    raise redrive.Retry(f"order {order} is held by {by}", after=5)
