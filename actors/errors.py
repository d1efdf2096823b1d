"""The branch of errors of this folder.

CallboardError
├── ActorError            something about an actor
│   ├── InvalidActor      its class cannot be hosted as it is written
│   ├── AskFailed         the asked actor answered with an error; `code` is the error's own
│   ├── ActorGaveUp       restarted too often; it takes no more messages
│   ├── HandlerFailed     a handler raised; what a dead letter carries
│   └── WebhookFailed     a receiver did not take an event; what a dead letter carries
│       └── WebhookRefused    its address is none that is called
"""

from __future__ import annotations

from ..topics.errors import CallboardError, InvalidInput
from ..topics.messages import ErrorInfo


class ActorError(CallboardError):
    """Something about an actor."""

    code = "actor_error"


class InvalidActor(InvalidInput):
    """An actor's class cannot be hosted as it is written."""

    code = "invalid_actor"


class AskFailed(ActorError):
    """The asked actor answered with an error, or could not read the request. `info` is the error as it was sent."""

    code = "ask_failed"

    def __init__(self, info: ErrorInfo) -> None:
        super().__init__(info.message, remote_code=info.code, remote_type=info.type)
        self.info = info
        self.code = info.code  # type: ignore[misc]  # what went wrong there is what went wrong here
        self.retryable = info.retryable  # type: ignore[misc]


class ActorGaveUp(ActorError):
    """An actor failed more often than its supervision allows; it takes no more messages in this process."""

    code = "actor_gave_up"


class HandlerFailed(ActorError):
    """A handler raised as often as a message may be delivered."""

    code = "handler_failed"


class WebhookFailed(ActorError):
    """The receiver of a webhook did not take an event as often as it was sent. Facts: `webhook`, `tries`."""

    code = "webhook_failed"


class WebhookRefused(WebhookFailed):
    """The host of a webhook's URL has an address that is not called. Facts: `host`."""

    code = "webhook_refused"
