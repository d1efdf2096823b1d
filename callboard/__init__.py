"""Callboard: an actor runtime for agents on NATS JetStream. Re-exports the public names of the rooms."""
