"""OpenSearch, through its official client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from aiohttp import ClientSSLError
from opensearchpy import AIOHttpConnection, AsyncOpenSearch
from opensearchpy.exceptions import ConnectionError as NotReached
from opensearchpy.exceptions import ConnectionTimeout, OpenSearchException, SSLError, TransportError

from redrive.outbox.sink import PerLoop
from redrive.outbox.sinks.search_index import SearchIndex
from redrive.outbox.sinks.search_server import Access, access_of, content_type, json_of, not_trusted, refused


def from_url(url: str) -> OpenSearch:
    """Returns the sink of ``opensearch+https://user:password@host:9200/notes``."""
    return OpenSearch(url)


class OpenSearch(SearchIndex):
    """An index of OpenSearch."""

    def __init__(
        self, url: str, *, mappings: Mapping[str, Any] | None = None, settings: Mapping[str, Any] | None = None
    ) -> None:
        """``mappings`` and ``settings`` are those of new indexes. Options of the URL: see ``access_of``."""
        access, alias = access_of(url)
        super().__init__(OpenSearchServer(access), alias, mappings=mappings, settings=settings)


class _Answered(TransportError):
    """An answer of 300 or more."""

    def __init__(self, status: int, text: str, headers: Mapping[str, str]) -> None:
        super().__init__(status, "refused", None)
        self.status, self.text, self.headers = status, text, headers


class _Connection(AIOHttpConnection):
    """Keeps the headers of a refusal, which the client's own exceptions drop: Retry-After is among them."""

    async def perform_request(
        self,
        method: str,
        url: str,
        params: Any = None,
        body: Any = None,
        timeout: Any = None,
        ignore: Any = (),
        headers: Any = None,
    ) -> Any:
        status, said, text = await super().perform_request(
            method, url, params, body, timeout=timeout, ignore=range(300, 600), headers=headers
        )
        if status >= 300:
            raise _Answered(status, text, said)
        return status, said, text


class OpenSearchServer:
    """Asks through the client, which connects with the first request."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._clients = PerLoop(lambda: _client(access))

    async def ask(
        self, method: str, path: str, body: Any = None, params: Mapping[str, str] | None = None
    ) -> Mapping[str, Any]:
        headers = {"content-type": content_type(body)}
        try:
            answer = await self._clients.get().transport.perform_request(
                method, path, params=dict(params or {}), body=body, headers=headers
            )
        except ConnectionTimeout as error:
            raise TimeoutError(f"{self._access.shown} did not answer within {self._access.timeout:g} s") from error
        except NotReached as error:
            if isinstance(error, SSLError) or isinstance(error.info, ClientSSLError):
                raise not_trusted(self._access, error.error) from error
            raise ConnectionError(f"{self._access.shown}: {error.error}") from error
        except _Answered as error:
            raise refused(error.status, json_of(error.text), error.headers) from error
        except OpenSearchException as error:  # an answer that cannot be read
            raise ConnectionError(f"{self._access.shown}: {error}") from error
        if method == "HEAD" and not answer:
            raise refused(404, None)
        return answer if isinstance(answer, Mapping) else {}

    async def close(self) -> None:
        if (client := self._clients.take()) is not None:
            await client.close()


def _client(access: Access) -> AsyncOpenSearch:
    where = urlsplit(access.url)
    host = {"host": where.hostname, "port": where.port, "scheme": where.scheme}
    host |= {"url_prefix": where.path} if where.path else {}
    tls: dict[str, Any] = {}
    if where.scheme == "https":
        tls = {"use_ssl": True, "verify_certs": access.verify, "ssl_show_warn": False}
        tls |= {"ca_certs": access.ca} if access.ca else {}
    return AsyncOpenSearch(
        [host],
        http_auth=None if access.username is None else (access.username, access.password or ""),
        headers={"authorization": f"ApiKey {access.api_key}"} if access.api_key else None,
        connection_class=_Connection,
        timeout=access.timeout,
        max_retries=0,
        retry_on_timeout=False,
        retry_on_status=(),
        **tls,
    )
