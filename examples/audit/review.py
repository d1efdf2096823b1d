"""One module's review put together from the results of its steps."""

from .defects import find_defects
from .measure import measure, parse
from .models import Defects, Measures, Outline, Review, ReviewTask, Source
from .reading import read_source

MAX_COMPLEX = 5
"""So many of its most complex functions a review names."""


def assemble(task: ReviewTask, source: Source, outline: Outline, measures: Measures, defects: Defects) -> Review:
    """Join the results of read_source, parse, measure and find_defects."""
    if source.error is not None:
        return failed(task, source.error)
    functions = [definition for definition in outline.definitions if definition.kind != "class"]
    functions.sort(key=lambda definition: (-definition.complexity, definition.line))
    return Review(
        module=task.module,
        file=task.file,
        measures=measures,
        findings=defects.findings,
        counts=defects.counts,
        complex=tuple(functions[:MAX_COMPLEX]),
        error=defects.error or outline.error,
    )


def failed(task: ReviewTask, reason: str) -> Review:
    """The review of a module that could not be reviewed."""
    return Review(task.module, task.file, error=reason)


def review_module(task: ReviewTask) -> Review:
    """All steps at once, in this process: what the distributed review of the module must equal."""
    source = read_source(task.path)
    return assemble(task, source, parse(source), measure(source), find_defects(source))
