"""One sending of one event to one receiver."""

from __future__ import annotations

import asyncio
import time
from importlib.metadata import version
from typing import NamedTuple

import httpx

from ...store.webhooks import key_of
from ...topics.messages import Webhook
from ..errors import WebhookRefused
from .config import WebhookSettings
from .signature import headers
from .target import target

_READ_BYTES = 64 * 1024
_GONE = 410


class Answer(NamedTuple):
    """How it went. `hopeless`: the receiver says that it wants no more of it."""

    taken: bool
    why: str = ""
    hopeless: bool = False
    after_s: float = 0.0
    """How long the receiver asks to be left alone."""


class Sender:
    """Sends; knows nothing of streams. `await close()` in the end."""

    def __init__(self, settings: WebhookSettings) -> None:
        self._settings = settings
        self._client = httpx.AsyncClient(
            timeout=settings.timeout_s, follow_redirects=False, trust_env=False,
            headers={"user-agent": f"callboard/{version('callboard')}", "content-type": "application/json"},
            limits=httpx.Limits(max_connections=200, max_keepalive_connections=50),
        )  # fmt: skip

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.aclose()

    async def send(self, webhook: Webhook, id_: str, body: bytes) -> Answer:
        """Sends an event once. Any 2xx takes it; redirects are not followed. Network errors are answers."""
        signed = headers(key_of(webhook.secret), id_, int(time.time()), body)
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                return await self._send(webhook.url, signed, body)
        except TimeoutError:
            return Answer(taken=False, why=f"no answer within {self._settings.timeout_s:g} s")
        except WebhookRefused as error:
            return Answer(taken=False, why=error.message)
        except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
            return Answer(taken=False, why=f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)

    async def _send(self, url: str, signed: dict[str, str], body: bytes) -> Answer:
        where = await target(url, private=self._settings.private)
        request = self._client.build_request(
            "POST", where.url, content=body, headers={**signed, "host": where.host},
            extensions={"sni_hostname": where.name},
        )  # fmt: skip
        response = await self._client.send(request, stream=True)
        try:
            read = 0
            async for part in response.aiter_raw():
                read += len(part)
                if read > _READ_BYTES:
                    break
        finally:
            await response.aclose()
        if response.is_success:
            return Answer(taken=True)
        return Answer(
            taken=False,
            why=f"HTTP {response.status_code}",
            hopeless=response.status_code == _GONE,
            after_s=_seconds(response.headers.get("retry-after", "")),
        )


def _seconds(text: str) -> float:
    return float(text) if text.isascii() and text.isdigit() else 0.0
