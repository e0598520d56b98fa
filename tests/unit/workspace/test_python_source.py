from __future__ import annotations

import sys
import warnings

import pytest

from traces_app.workspace.python_source import Source, SourceError, parse


def source(text: str) -> Source:
    found = parse(text.encode())
    assert isinstance(found, Source)
    return found


def test_classes_functions_and_names_have_their_lines() -> None:
    found = source(
        '"""What it is.\n\nMore."""\n'
        "LIMIT = 3\n"
        "a, (b, c) = 1, (2, 3)\n"
        "name: str\n"
        "@decorated\n"
        "class Shop(base.Model, Generic[T], metaclass=M):\n"
        '    """\n    Sells things.\n    """\n'
        "    async def sell(self): ...\n"
        "    def _count(self): ...\n"
        "async def fetch(): ...\n"
    )
    assert found.doc == "What it is."
    (cls,) = found.classes
    assert (cls.name, cls.line, cls.bases, cls.doc) == ("Shop", 8, ("base.Model", "Generic"), "Sells things.")
    assert [(m.name, m.line) for m in cls.methods] == [("sell", 12), ("_count", 13)]
    assert [(f.name, f.line, f.is_async) for f in found.functions] == [("fetch", 14, True)]
    assert [(n.name, n.line) for n in found.constants] == [("LIMIT", 4), ("a", 5), ("b", 5), ("c", 5), ("name", 6)]
    assert found.lines == 14


def test_imports_are_told_apart_by_when_they_happen() -> None:
    found = source(
        "import a, b.c\n"
        "from . import d\n"
        "from ..e import f as g, h\n"
        "if TYPE_CHECKING:\n    import i\nelse:\n    import j\n"
        "try:\n    import k\nexcept ImportError:\n    import l\nfinally:\n    import m\n"
        "with x:\n    import n\n"
        "for x in y:\n    import o\n"
        "match x:\n    case 1:\n        import p\n"
        "def run():\n    if x:\n        import q\n"
        "class C:\n    import r\n    def m(self):\n        import s\n"
    )
    assert [(i.module, i.level, i.names, i.kind) for i in sorted(found.imports, key=lambda i: i.line)] == [
        ("a", 0, (), "import"),
        ("b.c", 0, (), "import"),
        ("", 1, ("d",), "import"),
        ("e", 2, ("f", "h"), "import"),
        ("i", 0, (), "typing"),
        *((name, 0, (), "import") for name in "jklmnop"),
        ("q", 0, (), "lazy"),
        ("r", 0, (), "import"),
        ("s", 0, (), "lazy"),
    ]


@pytest.mark.parametrize("guard", ['__name__ == "__main__"', "'__main__' == __name__"])
def test_a_main_guard_is_found_where_it_stands(guard: str) -> None:
    assert source(f"x = 1\nif {guard}:\n    run()\n").main_line == 2
    assert source("\"__name__ == '__main__'\"\n").main_line == 0


def test_tests_are_counted_in_classes_too() -> None:
    assert source("def test_a(): ...\nclass T:\n    def test_b(self): ...\n    def helper(self): ...\n").tests == 2


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"x = (\n", 1),
        (b"a = 1\nprint 'python 2'\n", 2),
        (b"def f(:\n", 1),
        (b"\0", 0),
        (b"# -*- coding: nonsense -*-\n", 0),
        (b"x = '\xff'\n", 1),
        (b"(" * 5000 + b")" * 5000, None),
        (b"x = " + b"-" * 200_000 + b"1", None),
        (b"x" + b".y" * 50_000, None),
    ],
)
def test_what_does_not_parse_is_a_problem_and_not_an_exception(data: bytes, line: int | None) -> None:
    found = parse(data)
    if line is None:  # whether such source still parses depends on the interpreter; that it comes back does not
        return
    assert isinstance(found, SourceError)
    assert found.line == line or (line == 1 and found.line == 0)
    assert found.message


def test_nothing_is_executed_or_imported() -> None:
    source("import sys\nsys.workspace_was_executed = True\nimport this_module_does_not_exist_anywhere\n")
    assert not hasattr(sys, "workspace_was_executed")
    assert "this_module_does_not_exist_anywhere" not in sys.modules


def test_warnings_of_the_source_do_not_reach_us() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert source("x = '\\d'\nassert (1, 'always')\n").lines == 2


def test_a_docstring_with_control_characters_is_one_harmless_line() -> None:
    assert source('"""a\x1b[2J\\x1b[31m\tb"""\n').doc == "a [2J [31m b"
    assert len(source(f'"""{"x" * 500}"""\n').doc) <= 120
