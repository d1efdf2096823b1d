"""What hosts: processes, supervision, the embedded server, telemetry. Knows `actors`, `store` and `topics`."""
