"""The agent worker: takes work, claims it, carries it out, hands the outcome in."""

from .worker import AgentWorker, Leases

__all__ = ["AgentWorker", "Leases"]
