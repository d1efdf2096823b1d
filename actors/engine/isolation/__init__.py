"""Steps in processes of their own: `ctx.step(fn, …, isolate="process")`.

    worker ── Isolated ── Group ─┬─ guardian ─── callee ─── whatever it starts
                                 │  leads the process group, and ends all of it when the worker is gone
                                 └─ an order goes in, one answer comes out; both are JSON

The function travels as its import path, arguments and result through the codec, an exception as its class's name and
its message. Nothing is pickled.
"""

from .address import Address
from .isolated import Isolated, Isolation

__all__ = ["Address", "Isolated", "Isolation"]
