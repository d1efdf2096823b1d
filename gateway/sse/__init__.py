"""Event streams: frames of the log, blocks of frames that clients share, the hub of a watched run, the response."""
