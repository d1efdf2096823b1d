"""The values that travel between the steps, the runs and the report of an audit.

Everything here is frozen and made of plain JSON types, so that a step's result can be recorded and read back.
Absolute paths stand only in `ReviewTask.path` and `Source.path`; everything that a report shows uses `file`,
the path relative to the audited target.
"""

from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["high", "medium", "low", "info"]
Kind = Literal["function", "method", "class"]
Origin = Literal["ast", "pyflakes", "radon", "tokenize", "interpreter"]


@dataclass(frozen=True, slots=True)
class ReviewTask:
    """One module to review: where it is (`path`), what it is called (`module`), how a report shows it (`file`)."""

    path: str
    module: str
    file: str


@dataclass(frozen=True, slots=True)
class Listing:
    """The modules of a target, ordered by module name, and what was left out, each with its reason."""

    target: str
    tasks: tuple[ReviewTask, ...]
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """The decoded text of a file. With `error` set the file could not be read and `text` is empty."""

    path: str
    text: str
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Definition:
    """One function, method or class. Lines count from 1; a class has the complexity of its most complex method."""

    kind: Kind
    name: str
    line: int
    end_line: int
    complexity: int
    documented: bool


@dataclass(frozen=True, slots=True)
class Outline:
    """What a module defines and imports. `total` counts all definitions, `definitions` holds at most the cap."""

    definitions: tuple[Definition, ...] = ()
    imports: tuple[str, ...] = ()
    total: int = 0
    documented: bool = False
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Measures:
    """Figures of one module.

    `maintainability` is the index from 0 (worst) to 100 after Oman and Hagemeister, as normalised by radon.
    Complexities are cyclomatic. Each line is code, comment, docstring or blank, so these four add up to `lines`.
    A module that does not parse has its line counts and zeros.
    """

    lines: int = 0
    code_lines: int = 0
    comment_lines: int = 0
    docstring_lines: int = 0
    blank_lines: int = 0
    functions: int = 0
    classes: int = 0
    complexity_total: int = 0
    complexity_max: int = 0
    complexity_mean: float = 0.0
    maintainability: float = 0.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One defect. `line` counts from 1, `column` from 0; `symbol` is the definition around it, if any."""

    rule: str
    severity: Severity
    line: int
    column: int
    message: str
    symbol: str = ""


@dataclass(frozen=True, slots=True)
class Defects:
    """Findings in the order of lines. `counts` holds all of them by rule, `findings` at most the cap, worst kept."""

    findings: tuple[Finding, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Review:
    """The result for one module. `error` says why (a part of) the review is missing."""

    module: str
    file: str
    measures: Measures | None = None
    findings: tuple[Finding, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    complex: tuple[Definition, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a whole audit; small enough to be a run's result."""

    modules: int
    reviewed: int
    failed: int
    lines: int
    code_lines: int
    functions: int
    classes: int
    complexity_max: int
    complexity_mean: float
    maintainability_mean: float
    findings: int
    severities: dict[str, int]
    score: int


@dataclass(frozen=True, slots=True)
class RankedModule:
    """A line of the ranking: the weighted score, and the same per 100 lines of code."""

    rank: int
    module: str
    file: str
    score: int
    density: float
    severities: dict[str, int]
    measures: Measures


@dataclass(frozen=True, slots=True)
class RankedFinding:
    """A finding with the module it stands in; rank 1 is the one to read first."""

    rank: int
    module: str
    file: str
    finding: Finding


@dataclass(frozen=True, slots=True)
class RuleSummary:
    """How often a rule was broken, in how many modules, and why it exists."""

    rule: str
    severity: Severity
    why: str
    findings: int
    modules: int


@dataclass(frozen=True, slots=True)
class ComplexFunction:
    """One of the most complex functions of the whole target."""

    file: str
    definition: Definition


@dataclass(frozen=True, slots=True)
class Failure:
    """A module whose review is missing or partial, and the reason."""

    module: str
    file: str
    error: str


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that `report.md` and `report.json` show. Equal reviews in any order give an equal report."""

    target: str
    python: str
    figures: Figures
    rules: tuple[RuleSummary, ...]
    modules: tuple[RankedModule, ...]
    findings: tuple[RankedFinding, ...]
    complex: tuple[ComplexFunction, ...]
    failures: tuple[Failure, ...]
    skipped: tuple[str, ...] = ()
