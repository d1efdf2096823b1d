"""Reviews reconciled into one ranked report."""

import platform
from collections import Counter
from collections.abc import Iterable, Sequence

from .models import (
    ComplexFunction,
    Failure,
    Figures,
    Measures,
    RankedFinding,
    RankedModule,
    Report,
    Review,
    RuleSummary,
)
from .rules import RULES, WEIGHTS, weight

MAX_COMPLEX = 20
"""So many of the most complex functions a report names."""


def reconcile(target: str, reviews: Iterable[Review], skipped: Sequence[str] = ()) -> Report:
    """Make the report. The order of the reviews does not matter; of two for one module and file the last one counts.

    Findings are ranked by severity, then rare rules before frequent ones, then by the score of their module.
    """
    unique = {(review.module, review.file): review for review in reviews}
    ordered = [unique[key] for key in sorted(unique)]
    ranked = _ranked_modules(ordered)
    return Report(
        target=target,
        python=platform.python_version(),
        figures=_figures(ordered),
        rules=_rules(ordered),
        modules=ranked,
        findings=_ranked_findings(ordered, ranked),
        complex=_most_complex(ordered),
        failures=tuple(Failure(r.module, r.file, r.error) for r in ordered if r.error is not None),
        skipped=tuple(skipped),
    )


def score(review: Review) -> int:
    """The sum of the weights of all findings of the module, also of those beyond the cap."""
    return sum(weight(rule) * count for rule, count in review.counts.items())


def _severities(counts: Iterable[tuple[str, int]]) -> dict[str, int]:
    totals: dict[str, int] = dict.fromkeys(WEIGHTS, 0)
    for rule, count in counts:
        totals[RULES[rule].severity] += count
    return totals


def _totals(reviews: Sequence[Review]) -> Counter[str]:
    totals: Counter[str] = Counter()
    for review in reviews:
        totals.update(review.counts)
    return totals


def _figures(reviews: Sequence[Review]) -> Figures:
    measured = [review.measures for review in reviews if review.measures is not None]
    parsed = [review.measures for review in reviews if review.measures is not None and review.error is None]
    functions = sum(measures.functions for measures in parsed)
    complexity = sum(measures.complexity_mean * measures.functions for measures in parsed)
    code = sum(measures.code_lines for measures in parsed)
    index = sum(measures.maintainability * measures.code_lines for measures in parsed)
    totals = _totals(reviews)
    return Figures(
        modules=len(reviews),
        reviewed=len(parsed),
        failed=sum(review.error is not None for review in reviews),
        lines=sum(measures.lines for measures in measured),
        code_lines=sum(measures.code_lines for measures in measured),
        functions=functions,
        classes=sum(measures.classes for measures in measured),
        complexity_max=max((measures.complexity_max for measures in measured), default=0),
        complexity_mean=round(complexity / functions, 2) if functions else 0.0,
        maintainability_mean=round(index / code, 1) if code else 0.0,
        findings=totals.total(),
        severities=_severities(totals.items()),
        score=sum(score(review) for review in reviews),
    )


def _rules(reviews: Sequence[Review]) -> tuple[RuleSummary, ...]:
    totals = _totals(reviews)
    summaries = [
        RuleSummary(rule.id, rule.severity, rule.why, totals[rule.id], sum(rule.id in r.counts for r in reviews))
        for rule in RULES.values()
        if totals[rule.id]
    ]
    return tuple(sorted(summaries, key=lambda rule: (-WEIGHTS[rule.severity], -rule.findings, rule.rule)))


def _ranked_modules(reviews: Sequence[Review]) -> tuple[RankedModule, ...]:
    ordered = sorted(reviews, key=lambda review: (-score(review), review.module, review.file))
    return tuple(_ranked(rank, review) for rank, review in enumerate(ordered, 1) if review.measures is not None)


def _ranked(rank: int, review: Review) -> RankedModule:
    measures = review.measures or Measures()
    density = 100 * score(review) / measures.code_lines if measures.code_lines else 0.0
    severities = _severities(review.counts.items())
    return RankedModule(rank, review.module, review.file, score(review), round(density, 1), severities, measures)


def _ranked_findings(reviews: Sequence[Review], modules: Sequence[RankedModule]) -> tuple[RankedFinding, ...]:
    ranks = {(module.module, module.file): module.rank for module in modules}
    totals = _totals(reviews)
    found = [(review, finding) for review in reviews for finding in review.findings]
    found.sort(
        key=lambda pair: (
            -weight(pair[1].rule),
            totals[pair[1].rule],
            pair[1].rule,
            ranks.get((pair[0].module, pair[0].file), 0),
            pair[1].line,
            pair[1].column,
        )
    )
    return tuple(RankedFinding(rank, r.module, r.file, finding) for rank, (r, finding) in enumerate(found, 1))


def _most_complex(reviews: Sequence[Review]) -> tuple[ComplexFunction, ...]:
    found = [ComplexFunction(review.file, definition) for review in reviews for definition in review.complex]
    found.sort(key=lambda item: (-item.definition.complexity, item.file, item.definition.line))
    return tuple(found[:MAX_COMPLEX])
