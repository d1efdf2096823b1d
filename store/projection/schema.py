"""The tables of the projection and the version of their form.

Times are integers, microseconds since 1970 in UTC. `meta` holds how far the stream is applied; it changes in the same
transaction as the rows. A database of another `VERSION` is emptied and built again from the log.
"""

from __future__ import annotations

VERSION = 4
"""Written to `PRAGMA user_version`. Raise it with every change below, and with every change of what rows hold."""

KEPT_SKIPPED = 10_000
"""How many of the newest skipped messages are listed; `skipped_total` counts all."""

META = ("applied", "seen", "skipped_total")

CONTENT = {
    "runs": "id",
    "labels": "key, value, created, run",
    "counts": "agent, status",
    "threads": "id",
    "said": "thread, run, turn",
    "artifacts": "run, attempt, n",
    "skipped": "sequence",
}
"""The tables that a rebuild gives back, with the order in which the content digest reads them."""

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;

CREATE TABLE runs (
    id TEXT NOT NULL PRIMARY KEY, root TEXT NOT NULL, parent TEXT, agent TEXT NOT NULL, topic TEXT, thread TEXT,
    status TEXT NOT NULL, live INTEGER NOT NULL, reason TEXT, created INTEGER NOT NULL, updated INTEGER NOT NULL,
    started INTEGER, ended INTEGER, attempt INTEGER NOT NULL, steps INTEGER NOT NULL, rev INTEGER NOT NULL,
    error_code TEXT, error_message TEXT, metadata TEXT, sequence INTEGER NOT NULL,
    version TEXT NOT NULL, pinned INTEGER NOT NULL, forked_from TEXT, forked_at INTEGER, record TEXT NOT NULL
);
CREATE INDEX runs_by_time ON runs (created, id);
CREATE INDEX runs_by_status ON runs (status, created, id);
CREATE INDEX runs_by_agent ON runs (agent, status, created, id);
CREATE INDEX runs_by_root ON runs (root, created, id);
CREATE INDEX runs_by_parent ON runs (parent, created, id) WHERE parent IS NOT NULL;
CREATE INDEX runs_by_thread ON runs (thread, created, id) WHERE thread IS NOT NULL;
CREATE INDEX runs_by_topic ON runs (topic, created, id) WHERE topic IS NOT NULL;
CREATE INDEX runs_by_fork ON runs (forked_from, created, id) WHERE forked_from IS NOT NULL;
CREATE INDEX runs_by_pin ON runs (agent, version) WHERE pinned = 1 AND ended IS NULL;
CREATE INDEX runs_by_stillness ON runs (updated, id) WHERE live = 1;

CREATE TABLE labels (
    key TEXT NOT NULL, value TEXT NOT NULL, created INTEGER NOT NULL, run TEXT NOT NULL,
    PRIMARY KEY (key, value, created, run)
) WITHOUT ROWID;

CREATE TABLE counts (
    agent TEXT NOT NULL, status TEXT NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (agent, status)
) WITHOUT ROWID;

CREATE TABLE threads (
    id TEXT NOT NULL PRIMARY KEY, created INTEGER NOT NULL, updated INTEGER NOT NULL, messages INTEGER NOT NULL,
    metadata TEXT, record TEXT, sequence INTEGER NOT NULL
);
CREATE INDEX threads_by_time ON threads (created, id);

CREATE TABLE said (
    thread TEXT NOT NULL, run TEXT NOT NULL, turn TEXT NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (thread, run, turn)
) WITHOUT ROWID;

CREATE TABLE artifacts (
    run TEXT NOT NULL, attempt INTEGER NOT NULL, n INTEGER NOT NULL, name TEXT NOT NULL, media_type TEXT NOT NULL,
    size INTEGER NOT NULL, digest TEXT NOT NULL, stored INTEGER NOT NULL, sequence INTEGER NOT NULL,
    PRIMARY KEY (run, attempt, n)
) WITHOUT ROWID;

CREATE TABLE skipped (
    sequence INTEGER NOT NULL PRIMARY KEY, subject TEXT NOT NULL, reason TEXT NOT NULL, size INTEGER NOT NULL
);
"""
