"""The analysis of the demo: each rule, each kind of unreadable input, the listing, the report."""

import json
import os
import sys
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from examples.audit import (
    RULES,
    AuditTargetError,
    Review,
    ReviewTask,
    Source,
    failed,
    find_defects,
    list_modules,
    measure,
    parse,
    read_source,
    reconcile,
    review_module,
    to_json,
    to_markdown,
)
from examples.audit.defects import MAX_FINDINGS
from examples.audit.lines import count_lines
from examples.audit.reading import MAX_SOURCE_BYTES
from examples.audit.report import score
from examples.audit.syntax import parse_text


def branches(count: int) -> str:
    return "def f(x):\n" + "".join(f"    if x == {n}:\n        return {n}\n" for n in range(count)) + "    return x\n"


def nested(levels: int) -> str:
    lines = [
        "def f(x):",
        *("    " * n + f"while x > {n}:" for n in range(1, levels + 1)),
        "    " * (levels + 1) + "x += 1",
    ]
    return "\n".join(lines) + "\n"


SNIPPETS: dict[str, tuple[list[str], list[str]]] = {
    "syntax-error": (["def (:\n", "x = 1 +\n", "\0"], ["x = 1\n", ""]),
    "misplaced-statement": (
        [
            "return 1\n",
            "break\n",
            "def f():\n    from os import *\n",
            "import os\nfrom __future__ import annotations\n",
        ],
        ["def f():\n    return 1\n", "for x in []:\n    break\n"],
    ),
    "too-nested": (["x = " + "+".join(["y"] * 600) + "\n"], ["x = 1 + 2\n"]),
    "undefined-name": (
        ["print(nowhere)\n", "__all__ = ['gone']\n"],
        ["import os\nprint(os)\n", "from os import *\nprint(path)\n"],
    ),
    "format-mismatch": (
        ["'%s %s' % (1,)\n", "'{} {}'.format(1)\n", "'{}'.format(1, 2)\n", "'%(a)s' % {'b': 1}\n"],
        ["'%s %s' % (1, 2)\n", "'{} {}'.format(1, 2)\n"],
    ),
    "tuple-condition": (
        ["assert (1, 'message')\n", "if (1, 2):\n    pass\n"],
        ["assert 1, 'message'\n", "assert ()\n"],
    ),
    "raise-not-implemented": (["raise NotImplemented\n"], ["raise NotImplementedError\n"]),
    "swallowed-exception": (
        [
            "try:\n    f()\nexcept:\n    pass\n",
            "try:\n    f()\nexcept Exception:\n    ...\n",
            "try:\n    f()\nexcept (KeyError, BaseException):\n    'nothing'\n",
            "for x in y:\n    try:\n        f()\n    except Exception as error:\n        continue\n",
        ],
        [
            "try:\n    f()\nexcept KeyError:\n    pass\n",
            "try:\n    f()\nexcept Exception:\n    raise\n",
            "try:\n    f()\nexcept Exception:\n    x = 1\n",
        ],
    ),
    "return-in-finally": (
        [
            "def f():\n    try:\n        g()\n    finally:\n        return 1\n",
            "for x in y:\n    try:\n        g()\n    finally:\n        if x:\n            break\n",
        ],
        [
            "def f():\n    try:\n        return 1\n    finally:\n        g()\n",
            "try:\n    g()\nfinally:\n    for x in y:\n        break\n",
            "try:\n    g()\nfinally:\n    def f():\n        return 1\n",
        ],
    ),
    "blocking-call-in-async": (
        [
            "import time\nasync def f():\n    time.sleep(1)\n",
            "from time import sleep as rest\nasync def f():\n    rest(1)\n",
            "import subprocess as sp\nasync def f():\n    sp.run(['ls'])\n",
        ],
        [
            "import time\ndef f():\n    time.sleep(1)\n",
            "import asyncio\nasync def f():\n    await asyncio.sleep(1)\n",
            "import time\nasync def f():\n    def g():\n        time.sleep(1)\n    return g\n",
        ],
    ),
    "very-complex-function": ([branches(31)], [branches(29)]),
    "complex-function": ([branches(11), "class A:\n" + "    " + branches(11).replace("\n", "\n    ")], [branches(9)]),
    "bare-except": (
        ["try:\n    f()\nexcept:\n    g()\n", "try:\n    f()\nexcept:\n    log.warning('x')\n"],
        ["try:\n    f()\nexcept:\n    g()\n    raise\n", "try:\n    f()\nexcept OSError:\n    g()\n"],
    ),
    "broad-except": (
        [
            "try:\n    f()\nexcept Exception:\n    g()\n",
            "try:\n    f()\nexcept (OSError, Exception) as e:\n    x = None\n",
        ],
        [
            "try:\n    f()\nexcept Exception as e:\n    g(e)\n",
            "try:\n    f()\nexcept Exception:\n    logger.exception('no')\n",
            "try:\n    f()\nexcept Exception as e:\n    raise ValueError from e\n",
            "try:\n    f()\nexcept ValueError:\n    g()\n",
        ],
    ),
    "mutable-default": (
        [
            "def f(x=[]): pass\n",
            "def f(*, x={}): pass\n",
            "g = lambda x=set(): x\n",
            "from collections import deque\nasync def f(x=deque()): pass\n",
        ],
        ["def f(x=()): pass\n", "def f(x=None): pass\n", "def f(x=frozenset()): pass\n"],
    ),
    "unreachable-code": (
        [
            "def f():\n    return 1\n    g()\n",
            "def f(x):\n    if x:\n        return 1\n    else:\n        raise x\n    g()\n",
            "while True:\n    f()\ng()\n",
            "for x in y:\n    continue\n    g()\n",
        ],
        [
            "def f():\n    return\n    yield\n",
            "def f(x):\n    if x:\n        return 1\n    g()\n",
            "while True:\n    if f():\n        break\ng()\n",
            "def f():\n    with g():\n        raise ValueError\n    return 1\n",
        ],
    ),
    "eval-use": (
        ["eval(x)\n", "exec('x = ' + y)\n"],
        ["eval('1')\n", "from a import eval\neval(x)\n", "model.eval(x)\n"],
    ),
    "shell-true": (
        ["import subprocess\nsubprocess.run(x, shell=True)\n", "from subprocess import Popen as P\nP(x, shell=True)\n"],
        ["import subprocess\nsubprocess.run(x)\n", "import subprocess\nsubprocess.run(x, shell=False)\n"],
    ),
    "unsafe-temp-name": (["import tempfile\ntempfile.mktemp()\n"], ["import tempfile\ntempfile.mkstemp()\n"]),
    "unclosed-file": (
        [
            "x = open('a').read()\n",
            "import json\nx = json.load(open('a'))\n",
            "for line in open('a'):\n    pass\n",
            "def f():\n    a = open('a')\n    return a.read()\n",
            "open('a', 'w')\n",
        ],
        [
            "with open('a') as a:\n    a.read()\n",
            "def f():\n    a = open('a')\n    try:\n        return a.read()\n    finally:\n        a.close()\n",
            "def f():\n    return open('a')\n",
            "def f(self):\n    self.a = open('a')\n",
            "def f(stack):\n    return stack.enter_context(open('a'))\n",
            "def f():\n    a = open('a')\n    with a:\n        pass\n",
            "from tokenize import open\nx = open('a').read()\n",
            "def f():\n    a = open('a')\n    return a\n",
        ],
    ),
    "lost-task": (
        ["import asyncio\nasync def f():\n    asyncio.create_task(g())\n"],
        [
            "import asyncio\nasync def f():\n    t = asyncio.create_task(g())\n    await t\n",
            "async def f(group):\n    group.create_task(g())\n",
        ],
    ),
    "useless-comparison": (["x == 1\n"], ["assert x == 1\n", "y = x == 1\n"]),
    "literal-identity": (["if x is 'a':\n    pass\n"], ["if x == 'a':\n    pass\n", "if x is None:\n    pass\n"]),
    "duplicate-key": (["x = {'a': 1, 'a': 2}\n"], ["x = {'a': 1, 'b': 2}\n"]),
    "redefinition": (["def f(): pass\ndef f(): pass\n"], ["def f(): pass\nf()\ndef g(): pass\n"]),
    "none-comparison": (["y = x == None\n", "y = None != x\n"], ["y = x is None\n", "y = x == 0\n"]),
    "bool-comparison": (["y = x == True\n", "y = x != False\n"], ["y = x is True\n", "y = x == 1\n"]),
    "shadowed-builtin": (
        ["list = 1\n", "def f(id): pass\n", "def f():\n    for type in x:\n        pass\n", "def input(): pass\n"],
        ["class A:\n    id = 1\n    def list(self): pass\n", "items = 1\n", "self.id = 1\n"],
    ),
    "unused-import": (
        ["import os\n", "from a import b as c\n"],
        ["import os\nprint(os)\n", "import os\n__all__ = ['os']\n"],
    ),
    "unused-variable": (["def f():\n    x = g()\n"], ["def f():\n    x = g()\n    return x\n", "x = g()\n"]),
    "star-import": (["from os import *\n"], ["from os import path\n"]),
    "empty-fstring": (["x = f'a'\n"], ["x = f'{a}'\n", "x = 'a'\n"]),
    "invalid-escape": (["x = '\\d'\n"], ["x = r'\\d'\n", "x = '\\n'\n"]),
    "long-function": (["def f():\n" + "    g()\n" * 80], ["def f():\n" + "    g()\n" * 79]),
    "too-many-arguments": (
        ["def f(a, b, c, d, e, g, h): pass\n", "class A:\n    @staticmethod\n    def f(a, b, c, d, e, g, h): pass\n"],
        ["class A:\n    def f(self, b, c, d, e, g, h): pass\n", "def f(*, a, b, c, d, e, g, h): pass\n"],
    ),
    "deep-nesting": (
        [nested(6)],
        [nested(5), "def f(x):\n    if x:\n        pass\n" + "    elif x:\n        pass\n" * 9],
    ),
    "missing-docstring": (
        ["x = 1\n", "'''doc'''\ndef f(): pass\n", "'''doc'''\nclass A:\n    '''doc'''\n    def f(self): pass\n"],
        [
            "",
            "'''doc'''\ndef _f(): pass\n",
            "'''doc'''\nclass _A:\n    def f(self): pass\n",
            "'''doc'''\ndef f():\n    '''doc'''\n    def g(): pass\n",
            "'''doc'''\nclass A:\n    '''doc'''\n    @p.setter\n    def p(self, x): pass\n",
            "'''doc'''\nclass A:\n    '''doc'''\n    def __eq__(self, x): pass\n",
        ],
    ),
    "todo-comment": (["x = 1  # TODO: two\n", "# FIXME\n"], ["x = 'TODO'\n", "# mastodon\n"]),
}


def rules_broken(text: str, path: str = "module.py") -> set[str]:
    return set(find_defects(Source(path, text)).counts)


def test_every_rule_has_snippets_a_reason_and_a_unique_id() -> None:
    assert set(SNIPPETS) == set(RULES)
    assert all(rule.why.endswith(".") for rule in RULES.values())


@pytest.mark.parametrize(("rule", "text"), [(rule, text) for rule, (bad, _) in SNIPPETS.items() for text in bad])
def test_the_rule_finds_what_it_is_for(rule: str, text: str) -> None:
    defects = find_defects(Source("module.py", text))
    assert rule in defects.counts
    found = [finding for finding in defects.findings if finding.rule == rule]
    assert found
    assert all(finding.severity == RULES[rule].severity and finding.message for finding in found)
    assert all(1 <= finding.line <= text.count("\n") + 1 for finding in found)


@pytest.mark.parametrize(("rule", "text"), [(rule, text) for rule, (_, good) in SNIPPETS.items() for text in good])
def test_the_rule_leaves_good_code_alone(rule: str, text: str) -> None:
    assert rule not in rules_broken(text)


def test_a_finding_names_its_place_and_the_definition_around_it() -> None:
    text = "class A:\n    def f(self):\n        try:\n            g()\n        except Exception:\n            pass\n"
    [finding] = [f for f in find_defects(Source("m.py", text)).findings if f.rule == "swallowed-exception"]
    assert (finding.line, finding.column, finding.symbol) == (5, 8, "A.f")


def test_imports_of_a_package_init_are_its_interface() -> None:
    assert "unused-import" in rules_broken("from a import b\n", "p/module.py")
    assert "unused-import" not in rules_broken("from a import b\n", "p/__init__.py")


def test_definitions_of_a_private_module_need_no_docstring() -> None:
    assert "missing-docstring" in rules_broken("'''doc'''\ndef f(): pass\n", "p/__main__.py")
    assert "missing-docstring" not in rules_broken("'''doc'''\ndef f(): pass\n", "p/_inner.py")


def test_findings_are_capped_and_the_worst_are_kept() -> None:
    text = "'''doc'''\n" + "y = nowhere == None\n" * 500 + "try:\n    f()\nexcept:\n    pass\n"
    defects = find_defects(Source("m.py", text))
    assert defects.counts["none-comparison"] == 500
    assert len(defects.findings) == MAX_FINDINGS
    assert defects.counts["undefined-name"] == 501
    kept = Counter(finding.rule for finding in defects.findings)
    assert kept["swallowed-exception"] == 1
    assert kept["none-comparison"] == 20
    assert [f.line for f in defects.findings] == sorted(f.line for f in defects.findings)


def test_the_outline_lists_definitions_with_their_complexity() -> None:
    text = (
        "'''doc'''\nimport os.path\nfrom a import b as c\n"
        "class A:\n    def f(self, x):\n        '''doc'''\n        return 1 if x else 2\n"
        "def g():\n    class B:\n        def h(self, x):\n            if x: pass\n            if x: pass\n"
    )
    outline = parse(Source("m.py", text))
    shown = [(d.kind, d.name, d.line, d.complexity, d.documented) for d in outline.definitions]
    assert shown == [
        ("class", "A", 4, 2, False),
        ("method", "A.f", 5, 2, True),
        ("function", "g", 8, 1, False),
        ("class", "g.B", 9, 3, False),
        ("method", "g.B.h", 10, 3, False),
    ]
    assert outline.imports == ("a.b", "os")
    assert outline.documented
    assert outline.total == 5


def test_measures_of_a_small_module() -> None:
    text = "'''doc\nmore'''\n\n# comment\ndef f(x):\n    if x:  # both\n        return '''a\n\nb'''\n\nclass A: pass\n"
    measures = measure(Source("m.py", text))
    assert (measures.lines, measures.code_lines, measures.comment_lines) == (11, 5, 1)
    assert (measures.docstring_lines, measures.blank_lines) == (2, 3)
    assert (measures.functions, measures.classes, measures.complexity_max, measures.complexity_mean) == (1, 1, 2, 2.0)
    assert 0 < measures.maintainability <= 100


def test_an_empty_module_measures_zero() -> None:
    measures = measure(Source("m.py", ""))
    assert (measures.lines, measures.code_lines, measures.functions, measures.complexity_mean) == (0, 0, 0, 0.0)


def test_lines_of_a_module_that_does_not_parse_are_counted_all_the_same() -> None:
    assert measure(Source("m.py", "def (\n\n# c\n")).lines == 3
    assert count_lines("def (\n\n# c\n").code == 1


def test_the_default_target_is_the_standard_library_without_tests() -> None:
    listing = list_modules()
    names = [task.module for task in listing.tasks]
    assert 120 <= len(names) <= 220
    assert names == sorted(set(names))
    assert {"asyncio.base_events", "email", "logging.handlers", "json.decoder"} <= set(names)
    assert not any({"test", "tests"} & set(Path(task.file).parts[:-1]) for task in listing.tasks)
    assert all(not Path(task.file).is_absolute() and Path(task.path).is_file() for task in listing.tasks)
    assert listing.target.startswith(f"standard library of Python {sys.version_info.major}.")


def test_a_folder_is_listed_without_hidden_and_generated_folders(tmp_path: Path) -> None:
    wanted = ["a.py", "pkg/__init__.py", "pkg/b.py", "pkg/sub/c.py", "gui.pyw", "tests/test_a.py"]
    unwanted = [
        ".hidden/x.py",
        "__pycache__/x.py",
        "node_modules/m/x.py",
        "myenv/lib/x.py",
        "lib/site-packages/x.py",
        "notes.txt",
    ]
    for name in [*wanted, *unwanted, "myenv/pyvenv.cfg"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    listing = list_modules(str(tmp_path))
    assert {task.file for task in listing.tasks} == set(wanted)
    assert [task.module for task in listing.tasks] == ["a", "gui", "pkg", "pkg.b", "pkg.sub.c", "tests.test_a"]
    assert listing.target == tmp_path.name


def test_modules_of_a_package_carry_its_name_and_no_name_twice(tmp_path: Path) -> None:
    package = tmp_path / "box"
    (package / "a").mkdir(parents=True)
    for name in ("__init__.py", "a.py", "a/__init__.py"):
        (package / name).write_text("")
    tasks = list_modules(str(package)).tasks
    assert len({task.module for task in tasks}) == 3
    assert {"box", "box.a"} < {task.module for task in tasks}


def test_a_single_file_is_a_target(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("x = 1\n")
    path = str(tmp_path / "one.py")
    assert list_modules(path).tasks == (ReviewTask(path, "one", "one.py"),)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gone", "no such file"),
        ("empty", "holds no Python files"),
        ("a.txt", "not a Python source"),
        ("a\0b", "cannot"),
    ],
)
def test_a_target_that_cannot_be_audited_is_refused_with_the_reason(tmp_path: Path, name: str, says: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(AuditTargetError, match=says) as refused:
        list_modules(str(tmp_path / name))
    assert refused.value.code == "audit_target"
    assert not refused.value.retryable


def test_names_that_are_no_text_are_left_out_and_named(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    try:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/b\xff.py")).write_text("")
    except OSError:
        pytest.skip("this file system takes only valid names")
    os.mkfifo(tmp_path / "pipe.py")
    listing = list_modules(str(tmp_path))
    assert [task.file for task in listing.tasks] == ["a.py"]
    assert sorted(listing.skipped) == [r"b\udcff.py: the name is not valid text", "pipe.py: not a regular file"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"x = '\xff'\n", "cannot be decoded"),
        (b"\n\n\n'\xff'\n", "byte 4 is not valid utf-8"),
        (b"\x7fELF\0\0\0\1", "binary"),
        ("x = 1\n".encode("utf-16"), "binary"),
        (b"# -*- coding: klingon -*-\n", "unknown encoding: klingon"),
        (b"#" * (MAX_SOURCE_BYTES + 1), "too large"),
        (b"# coding: utf-7\nx = '+2AA-'\n", "no Unicode text"),
    ],
)
def test_what_cannot_be_read_is_an_error_of_the_review(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "a.py").write_bytes(content)
    [task] = list_modules(str(tmp_path)).tasks
    review = review_module(task)
    assert says in (review.error or "")
    assert review.findings == ()
    json.dumps(asdict(review)).encode()


def test_a_file_that_vanished_a_folder_and_a_broken_link_are_errors_too(tmp_path: Path) -> None:
    (tmp_path / "link.py").symlink_to(tmp_path / "nowhere.py")
    (tmp_path / "folder.py").mkdir()
    assert "cannot be opened" in (read_source(str(tmp_path / "gone.py")).error or "")
    assert "cannot be opened" in (read_source(str(tmp_path / "link.py")).error or "")
    assert "not a regular file" in (read_source(str(tmp_path / "folder.py")).error or "")
    assert [task.file for task in list_modules(str(tmp_path)).tasks] == ["link.py"]


def test_declared_encodings_and_byte_order_marks_are_honoured(tmp_path: Path) -> None:
    (tmp_path / "latin.py").write_bytes("# -*- coding: latin-1 -*-\nname = 'é'\n".encode("latin-1"))
    (tmp_path / "bom.py").write_bytes(b"\xef\xbb\xbfx = 1\r\n")
    latin = read_source(str(tmp_path / "latin.py"))
    assert "é" in latin.text
    assert parse(latin).error is None
    assert read_source(str(tmp_path / "bom.py")).text == "x = 1\n"


def test_a_syntax_error_is_a_finding_and_the_error_of_the_review(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("x = 1\ndef (:\n")
    [task] = list_modules(str(tmp_path)).tasks
    review = review_module(task)
    assert review.error is not None
    assert review.error.startswith("line 2:")
    assert review.counts == {"syntax-error": 1}
    assert review.measures is not None
    assert review.measures.lines == 2


def test_the_audited_folder_is_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import os\n")
    before = {path: path.stat().st_mtime_ns for path in [tmp_path, *tmp_path.rglob("*")]}
    listing = list_modules(str(tmp_path))
    to_markdown(reconcile(listing.target, map(review_module, listing.tasks)))
    assert {path: path.stat().st_mtime_ns for path in [tmp_path, *tmp_path.rglob("*")]} == before


@pytest.fixture(scope="module")
def reviews() -> list[Review]:
    """A real audit of real code: the reviews of one package of the standard library."""
    return [review_module(task) for task in list_modules().tasks if task.module.startswith("http")]


def test_the_report_does_not_depend_on_the_order_of_the_reviews(reviews: list[Review]) -> None:
    assert reconcile("http", reviews) == reconcile("http", [*reversed(reviews), reviews[0]])


def test_the_figures_of_the_report_add_up(reviews: list[Review]) -> None:
    task = ReviewTask("/gone.py", "gone", "gone.py")
    report = reconcile("http", [*reviews, failed(task, "the worker gave up")], ["x.py: not a regular file"])
    figures = report.figures
    assert (figures.modules, figures.failed, figures.reviewed) == (len(reviews) + 1, 1, len(reviews))
    assert figures.findings == sum(rule.findings for rule in report.rules) == sum(figures.severities.values())
    assert figures.score == sum(module.score for module in report.modules) == sum(map(score, reviews))
    assert [module.score for module in report.modules] == sorted((m.score for m in report.modules), reverse=True)
    assert [item.rank for item in report.findings] == list(range(1, len(report.findings) + 1))
    markdown = to_markdown(report)
    assert "`gone.py` the worker gave up" in markdown
    assert "x.py: not a regular file (left out)" in markdown
    assert json.loads(to_json(report))["figures"] == asdict(figures)


def test_the_markdown_tables_are_whole_whatever_the_code_says(tmp_path: Path) -> None:
    (tmp_path / "a|b`c.py").write_text("# TODO: | <b>`x` *y* _z_ __init__\n{'a|b': 1, 'a|b': 2}\nprint('%z|' % x)\n")
    listing = list_modules(str(tmp_path))
    markdown = to_markdown(reconcile(listing.target, map(review_module, listing.tasks)))
    tables = [block.splitlines() for block in markdown.split("\n\n") if block.startswith("|")]
    assert len(tables) >= 4
    for table in tables:
        widths = {line.replace("\\|", "").count("|") for line in table}
        assert len(widths) == 1, table
    assert "<b>" not in markdown.replace("\\<b\\>", "")


def test_the_report_of_nothing_is_a_report() -> None:
    assert to_markdown(reconcile("nothing", [])).startswith("# Code audit: nothing\n")


def test_results_of_all_steps_are_small_and_the_whole_audit_is_fast() -> None:
    tasks = list_modules().tasks[:60]
    started = time.process_time()
    sizes = [len(json.dumps(asdict(review_module(task)), ensure_ascii=False)) for task in tasks]
    assert time.process_time() - started < 60 * 0.2
    assert max(sizes) < 64 * 1024


WORDS = (
    "def class async await if else elif for while try except finally with return raise yield lambda import from as "
    "assert del global nonlocal pass break continue match case None True == != is in ( ) [ ] { } : = , . * ** @ f'{x}' "
    "'%s' '\\d' b'' x self open eval print # TODO \\"
)
PYTHON_WORDS = st.sampled_from(WORDS.split()) | st.sampled_from(
    ["\n", "\n    ", "\n        ", " ", "\t", "\f", "\0", "\r", "\ud800", "é", "x = [] ", "def f(x): "]
)


def assert_analysable(text: str) -> None:
    source = Source("module.py", text)
    defects = find_defects(source)
    for result in (defects, measure(source), parse(source)):
        json.dumps(asdict(result), allow_nan=False, ensure_ascii=False).encode()
    assert sum(defects.counts.values()) >= len(defects.findings)
    assert (parse_text(text).tree is None) == (defects.error is not None)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(st.characters()))
def test_any_text_is_analysed(text: str) -> None:
    assert_analysable(text)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(PYTHON_WORDS, max_size=40).map(" ".join))
def test_any_heap_of_python_words_is_analysed(text: str) -> None:
    assert_analysable(text)


GOOD_AND_BAD = [text for bad, good in SNIPPETS.values() for text in (*bad, *good) if len(text) < 1000]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(GOOD_AND_BAD), max_size=6), st.integers(0, 200), st.integers(0, 5))
def test_any_damaged_code_is_analysed(texts: list[str], start: int, length: int) -> None:
    whole = "".join(texts)
    assert_analysable(whole[:start] + whole[start + length :])


@pytest.mark.parametrize(
    "text",
    ["(" * 5000, "-" * 100_000 + "1", "x" + "[0]" * 5000, "x = " + "(" * 150 + ")" * 150, "if x:\n pass\n" * 5000],
)
def test_deep_and_long_code_does_not_break_the_analysis(text: str) -> None:
    assert_analysable(text)
