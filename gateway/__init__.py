"""The HTTP edge: native API, event streams, protocol bindings. Knows `topics` and `store`."""
