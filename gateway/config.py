"""Settings of the gateway, read from the environment once and passed down."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class GatewaySettings(BaseSettings):
    """Where the gateway listens and what it allows. Each field is `CALLBOARD_<NAME>` in the environment."""

    model_config = SettingsConfigDict(env_prefix="CALLBOARD_", env_ignore_empty=True, frozen=True, extra="ignore")

    host: str = "127.0.0.1"
    """Address to listen on. There is no authentication: whoever reaches the port can start and read runs."""
    port: int = Field(8700, ge=0, le=65535)
    """Port to listen on; 0 takes a free one."""
    projection: Path = Path(".callboard/projection.db")
    """The SQLite file that a projector keeps; it is only read here. Lists need it, single runs and events do not."""
    body_limit: int = Field(64 * 1024 * 1024, ge=1024)
    """Largest request body in bytes; a larger one is refused with 413."""
    ping_s: float = Field(15.0, gt=0)
    """Seconds of silence after which an event stream sends a comment, so that proxies keep it open."""
    wait_limit_s: float = Field(300.0, gt=0)
    """Longest time in seconds that a request may ask to wait."""
    sse_cache_bytes: int = Field(64 * 1024 * 1024, ge=0)
    """Memory for encoded history that event streams share; the log itself stays with the broker."""
    sse_tail_bytes: int = Field(2 * 1024 * 1024, ge=65536)
    """Memory of one watched run's newest events; a client that falls further behind is served from the log again."""
    shutdown_grace_s: float = Field(10.0, gt=0)
    """After SIGTERM: seconds that open requests get to finish."""
