"""What is said on the wire: subjects, messages, streams, ids, fences. Knows no other room."""
