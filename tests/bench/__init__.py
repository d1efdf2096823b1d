"""Measurements, as ratios against a raw nats-py reference in the same run: `make bench`."""
