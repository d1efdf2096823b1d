"""A digest of everything that the projection holds, to prove that a rebuild gives the identical content."""

from __future__ import annotations

import hashlib

from .database import Database
from .schema import CONTENT


async def content_digest(database: Database) -> str:
    """SHA-256 over all rows of all tables but `meta`, in a fixed order, at one moment. Reads the whole database."""
    digest = hashlib.sha256()
    async with database.snapshot() as connection:
        for table, order in CONTENT.items():
            digest.update(f"\0{table}\0".encode())
            cursor = await connection.execute(f"SELECT * FROM {table} ORDER BY {order}")  # noqa: S608 names of the schema
            while rows := await cursor.fetchmany(1000):
                for row in rows:
                    digest.update(repr(tuple(row)).encode("utf-8", "surrogatepass"))
            await cursor.close()
    return digest.hexdigest()
