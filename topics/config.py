"""Settings of the connection and of the streams, read from the environment once by the command line and passed down."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class BrokerSettings(BaseSettings):
    """How to reach NATS and how the streams are declared. Each field is `CALLBOARD_<NAME>` in the environment."""

    model_config = SettingsConfigDict(
        env_prefix="CALLBOARD_", env_ignore_empty=True, frozen=True, extra="ignore", populate_by_name=True
    )

    nats_url: str = Field("nats://127.0.0.1:4222", validation_alias="NATS_URL")
    """Servers, separated by commas; user and password or token may stand in the URL."""
    nats_creds: str | None = Field(None, validation_alias="NATS_CREDS")
    """Path of a credentials file (JWT and seed)."""
    nats_token: SecretStr | None = Field(None, validation_alias="NATS_TOKEN")
    namespace: str = "cb"
    """First token of every subject: one account can hold several installations."""
    replicas: int = Field(1, ge=1, le=5)
    """Copies of every stream; 3 on a cluster."""
    storage: Literal["file", "memory"] = "file"
    retention_days: float = Field(0, ge=0)
    """How long the log of runs is kept; 0 keeps it for ever. A live subject costs about 0.65 KB of server memory."""
    max_bytes: int = Field(0, ge=0)
    """Limit of each stream in bytes; 0 is none. When it is reached, publishers are told and nothing is dropped.
    INBOX, which holds only what no coordinator has taken yet, has no limit but the server's."""
    publish_timeout_s: float = Field(5.0, gt=0)
    """After this long without an acknowledgement a write counts as unanswered, and is retried by its own rule."""
    connect_timeout_s: float = Field(10.0, gt=0)
    checkpoint_keys: SecretStr | None = None
    """Keys with which the values of checkpoints are encrypted, separated by commas: the first one encrypts, each of
    them decrypts. Without one they are stored as plain JSON."""
