"""Settings of webhooks, read from the environment once by the command line and passed down."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class WebhookSettings(BaseSettings):
    """How events are sent. Each field is `CALLBOARD_WEBHOOK_<NAME>` in the environment."""

    model_config = SettingsConfigDict(
        env_prefix="CALLBOARD_WEBHOOK_", env_ignore_empty=True, frozen=True, extra="ignore"
    )

    timeout_s: float = Field(15.0, gt=0, le=300)
    """How long a receiver may take to answer."""
    attempts: int = Field(36, ge=1)
    """How often an event is sent before it becomes a dead letter; with the delays below that is about a day."""
    delay_initial_s: float = Field(1.0, gt=0)
    """The delay before the second try; it doubles each time."""
    delay_max_s: float = Field(3600.0, gt=0)
    """The longest delay."""
    concurrency: int = Field(8, ge=1)
    """Events under way to one webhook at the same time, from one process."""
    private: bool = True
    """Whether receivers may have addresses of private networks or of this machine. Link-local ones are refused."""
