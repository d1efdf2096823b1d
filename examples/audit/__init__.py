"""An audit of a Python code base, made of small steps.

The layers inside: `models` (the values), `rules` (the catalogue), `modules` and `reading` (the input),
`syntax`, `lines`, `view`, `complexity` (the ground the checks stand on), `handlers`, `flow`, `comparisons`, `calls`,
`functions`, `bindings` (the checks), `measure`, `defects`, `review` (the steps), `report`, `document` (the outcome).
Nothing here knows Callboard, and nothing writes to the audited target.
"""

from .defects import find_defects
from .document import to_json, to_markdown
from .measure import measure, parse
from .models import Defects, Figures, Finding, Listing, Measures, Outline, Report, Review, ReviewTask, Source
from .modules import AuditTargetError, list_modules
from .reading import read_source
from .report import reconcile
from .review import assemble, failed, review_module
from .rules import RULES

__all__ = [
    "RULES",
    "AuditTargetError",
    "Defects",
    "Figures",
    "Finding",
    "Listing",
    "Measures",
    "Outline",
    "Report",
    "Review",
    "ReviewTask",
    "Source",
    "assemble",
    "failed",
    "find_defects",
    "list_modules",
    "measure",
    "parse",
    "read_source",
    "reconcile",
    "review_module",
    "to_json",
    "to_markdown",
]
