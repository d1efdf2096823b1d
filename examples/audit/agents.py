"""The agents of the audit. `lead` takes a target and starts one `reviewer` for each of its modules.

Served by `callboard worker examples.audit.agents`; `callboard publish audit '{"target": "path/to/code"}'` is a task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from callboard import ChildFailed, Context, Retry, agent

from .defects import find_defects
from .document import to_json, to_markdown
from .executions import counted, counting
from .measure import measure as measure_source
from .measure import parse as parse_source
from .models import Figures, Listing, Review, ReviewTask
from .modules import list_modules
from .reading import read_source
from .report import reconcile as reconcile_reviews
from .review import assemble as assemble_review
from .review import failed

STEPS = 5
"""Of one review."""

modules = counted("modules", list_modules)
reconcile = counted("reconcile", reconcile_reviews)
read = counted("read", read_source)
parse = counted("parse", parse_source)
measure = counted("measure", measure_source)
defects = counted("defects", find_defects)
assemble = counted("assemble", assemble_review)


@dataclass(frozen=True, slots=True)
class AuditTask:
    """What to audit: a folder or a file that the workers can read; None: the running standard library."""

    target: str | None = None


@agent("reviewer", retries=Retry(max_attempts=2), timeout=timedelta(minutes=2))
async def reviewer(ctx: Context, task: ReviewTask) -> Review:
    """Reviews one module."""
    counting(ctx)
    source = await ctx.step(read, task.path)
    await ctx.progress(1, STEPS, "read")
    outline = await ctx.step(parse, source)
    await ctx.progress(2, STEPS, "parsed")
    measures = await ctx.step(measure, source)
    await ctx.progress(3, STEPS, "measured")
    found = await ctx.step(defects, source)
    await ctx.progress(4, STEPS, "defects found")
    return await ctx.step(assemble, task, source, outline, measures, found)


@agent("lead", topics=["audit"], timeout=timedelta(minutes=30))
async def lead(ctx: Context, task: AuditTask) -> Figures:
    """Audits a target: lists its modules, has each reviewed, and publishes report.md and report.json."""
    counting(ctx)
    listing = await ctx.step(modules, task.target)
    total = len(listing.tasks)
    await ctx.progress(0, total, "modules listed")
    calls = [ctx.call(reviewer, one, metadata={"module": one.module}) for one in listing.tasks]
    reviews = _settled(listing, await ctx.gather(*calls, return_exceptions=True))
    await ctx.progress(total, total, "modules reviewed")
    report = await ctx.step(reconcile, listing.target, reviews, listing.skipped)
    markdown, json = await asyncio.gather(asyncio.to_thread(to_markdown, report), asyncio.to_thread(to_json, report))
    await ctx.artifact("report.md", markdown, media_type="text/markdown")
    await ctx.artifact("report.json", json, media_type="application/json")
    return report.figures


def _settled(listing: Listing, outcomes: Sequence[Review | BaseException]) -> list[Review]:
    """The reviews in the order of the modules. A reviewer that failed is a line in the report, not the audit's end."""
    reviews: list[Review] = []
    for task, outcome in zip(listing.tasks, outcomes, strict=True):
        if isinstance(outcome, ChildFailed):
            why = outcome.error.message if outcome.error else str(outcome)
            reviews.append(failed(task, f"could not be reviewed: {why}"))
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            reviews.append(outcome)
    return reviews
