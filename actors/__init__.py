"""What acts: actors, the coordinator, the agent worker, the engines. Knows `topics` and `store`."""
