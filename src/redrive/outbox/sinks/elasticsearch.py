"""Elasticsearch 8 and newer, through its official client, which refuses OpenSearch (see ``opensearch.py``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elastic_transport import ConnectionTimeout, TlsError, TransportError
from elasticsearch import ApiError, AsyncElasticsearch, UnsupportedProductError

from redrive.errors import ConfigError
from redrive.outbox.sink import PerLoop
from redrive.outbox.sinks.search_index import SearchIndex
from redrive.outbox.sinks.search_server import Access, access_of, content_type, not_trusted, refused


def from_url(url: str) -> Elasticsearch:
    """Returns the sink of ``elasticsearch+https://user:password@host:9200/notes``."""
    return Elasticsearch(url)


class Elasticsearch(SearchIndex):
    """An index of Elasticsearch."""

    def __init__(
        self, url: str, *, mappings: Mapping[str, Any] | None = None, settings: Mapping[str, Any] | None = None
    ) -> None:
        """``mappings`` and ``settings`` are those of new indexes. Options of the URL: see ``access_of``."""
        access, alias = access_of(url)
        super().__init__(ElasticsearchServer(access), alias, mappings=mappings, settings=settings)


class ElasticsearchServer:
    """Asks through the client, which connects with the first request."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._clients = PerLoop(lambda: _client(access))

    async def ask(
        self, method: str, path: str, body: Any = None, params: Mapping[str, str] | None = None
    ) -> Mapping[str, Any]:
        headers = {"accept": "application/json", "content-type": content_type(body)}
        try:
            answer = await self._clients.get().perform_request(method, path, params=params, headers=headers, body=body)
        except UnsupportedProductError as error:
            raise self._another() from error
        except ApiError as error:
            if error.status_code == 406:  # it does not even know the client's types of content
                raise self._another() from error
            raise refused(error.status_code, error.body, error.meta.headers) from error
        except ConnectionTimeout as error:
            raise TimeoutError(f"{self._access.shown} did not answer within {self._access.timeout:g} s") from error
        except TlsError as error:
            raise not_trusted(self._access, error.message) from error
        except TransportError as error:
            raise ConnectionError(f"{self._access.shown}: {error.message}") from error
        if answer.meta.status >= 300:  # HEAD of what is not there, for which the client does not look who answers
            if "x-elastic-product" not in answer.meta.headers:
                raise self._another()
            raise refused(answer.meta.status, None)
        return answer.body if isinstance(answer.body, Mapping) else {}

    def _another(self) -> ConfigError:
        return ConfigError(
            f"the server at {self._access.shown} is not Elasticsearch",
            hint="for OpenSearch the sink's URL begins with opensearch+http:// or opensearch+https://",
        )

    async def close(self) -> None:
        if (client := self._clients.take()) is not None:
            await client.close()


def _client(access: Access) -> AsyncElasticsearch:
    tls: dict[str, Any] = {}
    if access.url.startswith("https:"):
        tls = {"verify_certs": access.verify, "ssl_show_warn": False}
        tls |= {"ca_certs": access.ca} if access.ca else {}
    return AsyncElasticsearch(
        access.url,
        basic_auth=None if access.username is None else (access.username, access.password or ""),
        api_key=access.api_key,
        request_timeout=access.timeout,
        max_retries=0,
        retry_on_timeout=False,
        **tls,
    )
