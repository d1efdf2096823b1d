"""What is durable: the event log, checkpoints, blobs, artifacts and the projection. Knows `topics`."""
