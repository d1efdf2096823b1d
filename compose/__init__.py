"""The cluster topology: three nats-servers, two coordinators, two gateways, three workers, a telemetry collector.

`compose.yaml` runs it as containers, `up.py` and `down.py` as plain processes on loopback; both use the configuration
files in `nats/` and `otel/`.
"""
