"""What is said on the wire: subjects, messages, streams, ids, fences, codec, and the connection. Knows no other room.

`subjects`, `ids`, `units`, `errors` are leaves; `messages` are the bodies; `client` and `bus` the connection; `reads`
and `pull` how streams are read; `streams` declares them; `codec` turns users' values into JSON and back.
"""
