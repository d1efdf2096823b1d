"""Settings of a process that hosts actors, read from the environment once by the command line and passed down."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class RuntimeSettings(BaseSettings):
    """How a process holds leases, hosts actors and ends. Each field is `CALLBOARD_<NAME>` in the environment."""

    model_config = SettingsConfigDict(env_prefix="CALLBOARD_", env_ignore_empty=True, frozen=True, extra="ignore")

    concurrency: int = Field(16, ge=1)
    """Runs that one worker process carries out at the same time."""
    lease_s: float = Field(10.0, gt=0)
    """How long a work message stays with a worker that no longer renews it; a killed worker is seen sooner."""
    cancel_grace_s: float = Field(30.0, gt=0)
    """How long a worker may take to confirm that a canceled run has stopped, before the run ends without it."""
    unserved_after_s: float = Field(30.0, gt=0)
    """How long work may lie without a worker for its agent before that is noted for people."""
    grace_s: float = Field(10.0, ge=0)
    """How long a process that was told to stop may finish or hand back what it holds."""
    beat_s: float = Field(1.0, gt=0)
    """Time between two heartbeats; a process unheard for three of them counts as gone."""
    owner_lease_s: float = Field(2.0, gt=0)
    """How long a partition of an actor's keys stays with a process that went silent, before another may take it."""
    restart_initial_s: float = Field(0.1, gt=0)
    """Backoff before the first restart of a failed actor; doubles each time, with jitter."""
    restart_max_s: float = Field(10.0, gt=0)
    """The longest backoff before a restart."""
    restart_limit: int = Field(10, ge=0)
    """Restarts without a success between them, within `restart_window_s`, after which an actor is given up."""
    restart_window_s: float = Field(300.0, gt=0)
    """Restarts longer ago than this do not count."""
    blocked_after_s: float = Field(1.0, gt=0)
    """An event loop that stood still for this long is reported, with the name of what blocks it."""
