"""The catalogue of rules: what is looked for, how bad it is, and why it matters."""

from dataclasses import dataclass

from .models import Origin, Severity

WEIGHTS: dict[Severity, int] = {"high": 10, "medium": 4, "low": 1, "info": 0}
"""What one finding adds to the score of its module."""

MAX_COMPLEXITY = 10
"""Above it a function is hard to test completely (McCabe 1976; radon's grade C begins here)."""
EXTREME_COMPLEXITY = 30
"""Above it (radon's grade E) nobody holds all paths of a function in mind."""
MAX_FUNCTION_LINES = 80
MAX_ARGUMENTS = 6
"""Positional parameters without self or cls; keyword-only ones cannot be mixed up and do not count."""
MAX_NESTING = 5
"""Levels of if, for, while, with, try and match inside a function."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: its stable id, its severity, the library or mechanism that finds it, and the reason for it."""

    id: str
    severity: Severity
    origin: Origin
    why: str


_ALL = (
    Rule("syntax-error", "high", "interpreter", "The interpreter cannot compile this file."),
    Rule("misplaced-statement", "high", "pyflakes", "The statement parses but cannot stand where it does."),
    Rule("too-nested", "medium", "interpreter", "The code is nested too deeply for the analysis, and for readers."),
    Rule("undefined-name", "high", "pyflakes", "Reaching this line raises NameError, or an export does not exist."),
    Rule("format-mismatch", "high", "pyflakes", "The format string and its values do not fit together."),
    Rule("tuple-condition", "high", "pyflakes", "A non-empty tuple is always true, so this condition tests nothing."),
    Rule("raise-not-implemented", "high", "pyflakes", "NotImplemented is no exception; raising it is a TypeError."),
    Rule("swallowed-exception", "high", "ast", "A broad handler that does nothing hides every error, expected or not."),
    Rule("return-in-finally", "high", "ast", "Leaving a finally block drops the exception that is on its way."),
    Rule("blocking-call-in-async", "high", "ast", "A blocking call stops every other task of the event loop."),
    Rule("very-complex-function", "high", "radon", f"Complexity above {EXTREME_COMPLEXITY}: no test covers it all."),
    Rule("bare-except", "medium", "ast", "It also catches KeyboardInterrupt and SystemExit."),
    Rule("broad-except", "medium", "ast", "Every error is caught and none is raised again, logged or passed on."),
    Rule("mutable-default", "medium", "ast", "The default is made once and shared by all calls."),
    Rule("complex-function", "medium", "radon", f"Complexity above {MAX_COMPLEXITY}: hard to test and to change."),
    Rule("unreachable-code", "medium", "ast", "This code never runs; something was meant otherwise or is dead."),
    Rule("eval-use", "medium", "ast", "eval and exec run whatever text reaches them and hide names from every tool."),
    Rule("shell-true", "medium", "ast", "Text that reaches a shell is interpreted by it."),
    Rule("unsafe-temp-name", "medium", "ast", "Somebody else can take the name before it is used."),
    Rule("unclosed-file", "medium", "ast", "The file stays open until the garbage collector finds it."),
    Rule("lost-task", "medium", "ast", "The loop holds tasks weakly: one nobody keeps may vanish."),
    Rule("useless-comparison", "medium", "ast", "The result is thrown away; an assert or = was meant."),
    Rule("literal-identity", "medium", "pyflakes", "Identity of literals depends on the interpreter; == was meant."),
    Rule("duplicate-key", "medium", "pyflakes", "The later value silently replaces the earlier one."),
    Rule("redefinition", "medium", "pyflakes", "The first definition is never used."),
    Rule("none-comparison", "low", "ast", "== can be overloaded; identity with None cannot."),
    Rule("bool-comparison", "low", "ast", "Comparing with True or False refuses other truthy and falsy values."),
    Rule("shadowed-builtin", "low", "ast", "The builtin cannot be used below, and readers expect it."),
    Rule("unused-import", "low", "pyflakes", "It costs start-up time and claims a dependency that is not there."),
    Rule("unused-variable", "low", "pyflakes", "A result nobody reads is dead code or a forgotten use."),
    Rule("star-import", "low", "pyflakes", "Nobody, and no tool, can tell where a name comes from."),
    Rule("empty-fstring", "low", "pyflakes", "An f-string without placeholders: the prefix or a value is wrong."),
    Rule("invalid-escape", "low", "interpreter", "Unknown escape sequences will become a syntax error."),
    Rule("long-function", "low", "ast", f"More than {MAX_FUNCTION_LINES} lines do not fit on a screen."),
    Rule("too-many-arguments", "low", "ast", f"More than {MAX_ARGUMENTS} positional arguments get mixed up."),
    Rule("deep-nesting", "low", "ast", f"More than {MAX_NESTING} levels: the conditions of a line are out of sight."),
    Rule("missing-docstring", "low", "ast", "A public name without a contract; readers must guess it from the code."),
    Rule("todo-comment", "info", "tokenize", "Work that was put off; no defect in itself."),
)

RULES: dict[str, Rule] = {rule.id: rule for rule in _ALL}
"""Every rule by its id, the worst first."""


def weight(rule: str) -> int:
    """What one finding of the rule adds to a score. Raises KeyError for an unknown id."""
    return WEIGHTS[RULES[rule].severity]
