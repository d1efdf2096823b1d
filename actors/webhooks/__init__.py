"""Webhooks: an actor that tells HTTP receivers what happens.

streams ─ fanout (which event is for whom) ─ cb.hook.{name} ─ deliverer (one consumer a webhook) ─ sender ─ receiver
"""

from .config import WebhookSettings
from .webhooks import WebhookActor

__all__ = ["WebhookActor", "WebhookSettings"]
