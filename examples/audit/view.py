"""A parsed module made easy to question: nodes by type, parents, enclosing definitions, what names refer to."""

import ast
from collections import defaultdict, deque
from collections.abc import Iterator
from typing import TypeVar

from .models import Finding
from .rules import RULES
from .syntax import Problem, printable

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
DefinitionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)

N = TypeVar("N", bound=ast.AST)


class CodeView:
    """Read-only view of one tree; built by a single walk, answers in constant time afterwards."""

    def __init__(self, text: str, tree: ast.Module, warnings: tuple[Problem, ...] = (), filename: str = "") -> None:
        """`filename` is the last part of the path: `__init__.py` and names with an underscore are special."""
        self.text = text
        self.tree = tree
        self.warnings = warnings
        self.package = filename == "__init__.py"
        self.private = filename.startswith("_") and not filename.startswith("__")
        self._by_type: dict[type[ast.AST], list[ast.AST]] = defaultdict(list)
        self._parents: dict[ast.AST, ast.AST] = {}
        self._walk()
        self.names: dict[DefinitionNode, str] = {}
        self._symbols: dict[int, str] = {}
        self._name_definitions()
        self.imports = dict(self._imported())
        self.bound = frozenset(self._bound_in_module()) | self.imports.keys()

    def of(self, kind: type[N]) -> Iterator[N]:
        """Yield the nodes of exactly this type, outer ones first."""
        for node in self._by_type[kind]:
            assert isinstance(node, kind)
            yield node

    def functions(self) -> Iterator[FunctionNode]:
        """Yield the functions and methods, plain and async, in the order of their lines."""
        return (node for node in self.names if isinstance(node, FUNCTIONS))

    def parent(self, node: ast.AST) -> ast.AST | None:
        """The node around this one, None for the module."""
        return self._parents.get(node)

    def function(self, node: ast.AST) -> FunctionNode | None:
        """The function whose body runs this node, or None at module and class level and inside a lambda."""
        around = self.parent(node)
        while around is not None and not isinstance(around, _SCOPES):
            around = self.parent(around)
        return around if isinstance(around, FUNCTIONS) else None

    def dotted(self, node: ast.AST) -> str:
        """The full name an expression refers to (`from time import sleep as s` makes `s` "time.sleep"), or ''."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        head = self.imports.get(node.id, node.id)
        return ".".join([head, *reversed(parts)])

    def calls_builtin(self, node: ast.AST, *names: str) -> bool:
        """Whether the node is a call of one of these builtins, which the module has not replaced by its own."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            return False
        return node.func.id in names and node.func.id not in self.bound

    def finding(self, rule: str, node: ast.stmt | ast.expr | ast.ExceptHandler | ast.arg, message: str) -> Finding:
        """A finding at the node."""
        return self.finding_at(rule, node.lineno, node.col_offset, message)

    def finding_at(self, rule: str, line: int, column: int, message: str) -> Finding:
        """A finding at a line and column, attributed to the definition around that line."""
        symbol = self._symbols.get(line, "")
        return Finding(rule, RULES[rule].severity, line, column, printable(message), printable(symbol, 120))

    def _walk(self) -> None:
        todo: deque[ast.AST] = deque([self.tree])
        while todo:
            node = todo.popleft()
            self._by_type[type(node)].append(node)
            for child in ast.iter_child_nodes(node):
                if not isinstance(child, (ast.expr_context, ast.operator, ast.cmpop)):  # shared, and of no interest
                    self._parents[child] = node
                    todo.append(child)

    def _name_definitions(self) -> None:
        """Give each definition its qualified name and each line its innermost definition; outer ones come first."""
        found: list[DefinitionNode] = [*self.of(ast.FunctionDef), *self.of(ast.AsyncFunctionDef)]
        found += self.of(ast.ClassDef)
        for node in sorted(found, key=lambda node: (node.lineno, node.col_offset)):
            around = self.parent(node)
            while around is not None and not isinstance(around, (*FUNCTIONS, ast.ClassDef)):
                around = self.parent(around)
            self.names[node] = f"{self.names[around]}.{node.name}" if around is not None else node.name
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            self._symbols.update(dict.fromkeys(range(first, (node.end_lineno or first) + 1), self.names[node]))

    def _imported(self) -> Iterator[tuple[str, str]]:
        for node in self.of(ast.Import):
            for alias in node.names:
                yield (alias.asname, alias.name) if alias.asname else (alias.name.partition(".")[0],) * 2
        for origin in self.of(ast.ImportFrom):
            for alias in origin.names:
                yield alias.asname or alias.name, f"{'.' * origin.level}{origin.module or ''}.{alias.name}"

    def _bound_in_module(self) -> Iterator[str]:
        for name in self.of(ast.Name):
            if isinstance(name.ctx, ast.Store) and self.function(name) is None:
                yield name.id
        for definition in self.names:
            if isinstance(self.parent(definition), (ast.Module, ast.If, ast.Try, ast.ExceptHandler)):
                yield definition.name


def inside(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes below this one that run with it: bodies of nested functions, classes and lambdas are left out."""
    todo = deque(ast.iter_child_nodes(node))
    while todo:
        child = todo.popleft()
        yield child
        if not isinstance(child, _SCOPES):
            todo.extend(ast.iter_child_nodes(child))
