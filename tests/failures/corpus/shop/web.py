"""Calls over HTTP, by the clients people use."""

import asyncio
import json
import urllib.request

import aiohttp
import httpx
import requests


def fetch(url):
    answer = httpx.get(url, timeout=0.15)
    answer.raise_for_status()
    return answer.json()


def push_stock(url):
    async def send():
        async with httpx.AsyncClient(timeout=0.15) as client:
            return (await client.post(url, json={"stock": 1})).raise_for_status()

    return asyncio.run(send())


def download(url):
    answer = requests.get(url, timeout=0.15)
    answer.raise_for_status()
    return answer.content


def crawl(url):
    async def get():
        async with aiohttp.ClientSession(raise_for_status=True) as session, session.get(url) as answer:
            return await answer.text()

    return asyncio.run(get())


def old_style(url):
    with urllib.request.urlopen(url, timeout=0.15) as answer:
        return json.load(answer)
