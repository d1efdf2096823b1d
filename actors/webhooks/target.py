"""Where a webhook's URL leads: its host is looked up once for each sending, judged, and that address is called.

So the address that was judged is the one that is called, whatever the name stands for a moment later.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import NamedTuple

import httpx

from ..errors import WebhookRefused

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Target(NamedTuple):
    """What to call: the URL with an address in it, the `Host` header, the name that a certificate must have."""

    url: httpx.URL
    host: str
    name: str


async def target(url: str, *, private: bool) -> Target:
    """Looks the host up. Raises WebhookRefused when none of its addresses may be called, OSError when it has none."""
    asked = httpx.URL(url)
    port = asked.port or (443 if asked.scheme == "https" else 80)
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(asked.host, port, type=socket.SOCK_STREAM)
    addresses = [ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]
    for address in addresses:
        if refused(address, private=private) is None:
            return Target(asked.copy_with(host=str(address)), asked.netloc.decode(), asked.host)
    why = refused(addresses[0], private=private)
    raise WebhookRefused(
        f"{asked.host} has the address {addresses[0]}, which is {why}: webhooks do not go there", host=asked.host
    )


def refused(address: Address, *, private: bool) -> str | None:
    """Why an address is not called; None when it may be."""
    inner = getattr(address, "ipv4_mapped", None)
    if inner is not None:
        return refused(inner, private=private)
    if address.is_link_local:
        return "link-local, where clouds keep their secrets"
    if address.is_multicast or address.is_unspecified:
        return "no address of one machine"
    if not private and not address.is_global:
        return "of a private network or of this machine"
    return None
