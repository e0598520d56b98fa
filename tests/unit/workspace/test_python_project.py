from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.workspace.trees import SHOP, plant, scanned
from traces_app.workspace.budget import Budget
from traces_app.workspace.errors import Cancelled, NotFound, OutsideRoots, Timeout, WrongKind
from traces_app.workspace.project import Project
from traces_app.workspace.python_project import ScanLimits, scan
from traces_app.workspace.roots import Roots


def edges(project: Project) -> set[tuple[str, str]]:
    return {(e.source, e.target) for e in project.edges}


def parts(project: Project) -> list[str]:
    return [part.name for part in project.parts]


def test_a_scan_knows_modules_parts_entry_points_and_dependencies(tmp_path: Path) -> None:
    project = scanned(tmp_path / "shop", SHOP)
    assert set(project.modules) == {
        "manage",
        "core",
        "core.views",
        "core.services",
        "core.models",
        "api",
        "api.client",
        "api.server",
        "utils",
        "utils.a",
        "utils.b",
        "tests.test_core",
    }
    assert set(parts(project)) == {"core", "api", "utils"}
    assert [(e.path, e.line, e.what) for e in project.entry_points] == [
        ("pyproject.toml", 5, "shop"),
        ("manage.py", 3, "main"),
    ]
    assert project.external == {"requests": ("core.services",)}
    assert [m.name for m in project.tests] == ["tests.test_core"]
    assert project.readme is not None
    assert (project.readme.path, project.readme.line, project.readme.title) == ("README.md", 3, "The shop")
    assert project.languages["Python"][0] == 12
    assert project.truncated is None


def test_imports_are_resolved_with_their_lines(tmp_path: Path) -> None:
    project = scanned(tmp_path / "shop", SHOP)
    assert edges(project) == {
        ("manage", "core"),
        ("core.views", "core.services"),
        ("core.services", "core.models"),
        ("api", "core.views"),
        ("api.client", "core.services"),
        ("api.client", "api.server"),
        ("api.server", "api.client"),
        ("utils.a", "utils.b"),
        ("utils.b", "utils.a"),
        ("tests.test_core", "core.models"),
    }
    assert project.edge_lines["api.client", "api.server"].line == 2
    assert project.edge_lines["api.server", "api.client"].kind == "lazy"


def test_a_cycle_counts_only_what_is_imported_at_import_time(tmp_path: Path) -> None:
    project = scanned(tmp_path / "shop", SHOP)
    assert project.cycles == [["utils.a", "utils.b"]]


def test_a_typing_import_makes_no_cycle(tmp_path: Path) -> None:
    project = scanned(
        tmp_path,
        {
            "p/__init__.py": "",
            "p/a.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p import b\n",
            "p/b.py": "from p.a import x\n",
        },
    )
    assert project.cycles == []
    assert project.all_imports["p.a"] == frozenset()
    assert ("p.a", "p.b") in edges(project)


def test_the_strongest_kind_of_an_import_is_kept(tmp_path: Path) -> None:
    project = scanned(
        tmp_path, {"p/__init__.py": "", "p/a.py": "def f():\n    from p import b\nfrom p import b\n", "p/b.py": ""}
    )
    assert (project.edge_lines["p.a", "p.b"].kind, project.edge_lines["p.a", "p.b"].line) == ("import", 3)


def test_relative_imports_are_resolved_from_packages_and_modules(tmp_path: Path) -> None:
    project = scanned(
        tmp_path,
        {
            "p/__init__.py": "from .a import x\nfrom . import sub\n",
            "p/a.py": "",
            "p/sub/__init__.py": "from ..a import y\nfrom .. import b\nfrom . import deep\n",
            "p/sub/deep.py": "from ...p import a\nfrom .... import outside\nfrom ..b import z\nfrom .nothing import q\n",
            "p/b.py": "from .sub.deep import *\n",
        },
    )
    assert edges(project) == {
        ("p", "p.a"),
        ("p", "p.sub"),
        ("p.sub", "p.a"),
        ("p.sub", "p.b"),
        ("p.sub", "p.sub.deep"),
        ("p.sub.deep", "p.b"),
        ("p.sub.deep", "p.sub"),
        ("p.sub.deep", "p.a"),
        ("p.b", "p.sub.deep"),
    }


def test_a_source_directory_is_no_part_of_the_names(tmp_path: Path) -> None:
    project = scanned(
        tmp_path,
        {
            "src/pkg/__init__.py": "",
            "src/pkg/a.py": "import pkg.b\n",
            "src/pkg/b.py": "",
            "tests/test_a.py": "from pkg import a\n",
            "docs/conf.py": "import pkg\n",
        },
    )
    assert ("pkg.a", "pkg.b") in edges(project)
    assert ("tests.test_a", "pkg.a") in edges(project)
    assert parts(project) == ["a", "b"]
    assert project.package == "pkg"
    assert project.find("a").path == "src/pkg/a.py"


def test_a_standard_module_is_not_shadowed_by_a_file_of_the_same_name_deeper_down(tmp_path: Path) -> None:
    project = scanned(
        tmp_path,
        {
            "p/__init__.py": "",
            "p/logging.py": "import logging\n",
            "p/types.py": "",
            "p/x.py": "import types\nimport json\n",
            "scripts/json.py": "",
            "redis/client.py": "",
            "p/y.py": "import redis\n",
        },
    )
    assert edges(project) == set()
    assert project.external == {"redis": ("p.y",)}


def test_scripts_see_their_neighbours_and_services_of_a_monorepo_their_own(tmp_path: Path) -> None:
    project = scanned(
        tmp_path,
        {
            "tools/run.py": "import helper\n",
            "tools/helper.py": "",
            "services/one/app/__init__.py": "",
            "services/one/app/main.py": "from app import models\n",
            "services/one/app/models.py": "",
            "services/two/app/__init__.py": "",
            "services/two/app/main.py": "from app import models\n",
            "services/two/app/models.py": "",
        },
    )
    assert edges(project) == {
        ("tools.run", "tools.helper"),
        ("services.one.app.main", "services.one.app.models"),
        ("services.two.app.main", "services.two.app.models"),
    }


def test_a_package_that_is_scanned_itself_keeps_its_dotted_names(tmp_path: Path) -> None:
    plant(
        tmp_path,
        {
            "lib/pkg/__init__.py": "",
            "lib/pkg/db/__init__.py": "",
            "lib/pkg/db/models.py": "from pkg.db import base\nimport pkg.web\n",
            "lib/pkg/db/base.py": "",
        },
    )
    project = scan(Roots([tmp_path]), "lib/pkg/db")
    assert set(project.modules) == {"pkg.db", "pkg.db.models", "pkg.db.base"}
    assert edges(project) == {("pkg.db.models", "pkg.db.base")}
    assert project.external == {}
    assert project.where("pkg.db.models", 1) == "lib/pkg/db/models.py:1"
    assert set(scan(Roots([tmp_path / "lib" / "pkg"])).modules) == {"pkg", "pkg.db", "pkg.db.models", "pkg.db.base"}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"a.py": "x = 1\n" * 3, "b.py": "x = 1\n"}, ["a", "b"]),
        ({"one/__init__.py": "", "one/x.py": "", "setup.py": ""}, ["one"]),
        ({"co/__init__.py": "", "co/app/__init__.py": "", "co/app/a.py": "", "co/app/b.py": "x\n"}, ["b", "a"]),
        (
            {"one/__init__.py": "", "two/__init__.py": "", "setup.py": "", "docs/conf.py": "", "run.py": ""},
            ["one", "two", "run"],
        ),
        ({"tests/test_x.py": "def test_x(): ...\n"}, ["tests"]),
        ({"README.md": "hi"}, []),
        ({"p/__init__.py": "x = 1\n"}, ["p"]),
    ],
)
def test_parts_are_what_one_would_call_the_modules(tmp_path: Path, files: dict[str, str], expected: list[str]) -> None:
    assert parts(scanned(tmp_path, files)) == expected


def test_a_directory_called_test_is_tests_only_with_tests_in_it(tmp_path: Path) -> None:
    project = scanned(
        tmp_path,
        {
            "p/__init__.py": "",
            "p/test/__init__.py": "",
            "p/test/runner.py": "",
            "q/__init__.py": "",
            "q/test/test_a.py": "",
            "q/test/data.py": "",
            "q/latest/x.py": "",
            "q/contest.py": "",
        },
    )
    assert {m.name for m in project.tests} == {"q.test.test_a", "q.test.data"}


def test_broken_files_are_problems_and_the_rest_is_there(tmp_path: Path) -> None:
    project = scanned(
        tmp_path,
        {
            "p/__init__.py": "",
            "p/ok.py": "import p\n",
            "p/bad.py": "x = 1\ndef f(:\n",
            "p/nul.py": b"\0",
            "p/py2.py": "print 1\n",
            "p/huge.py": b"x = 1\n" * 200_000,
        },
    )
    assert [(p.path, p.line) for p in project.problems] == [
        ("p/bad.py", 2),
        ("p/huge.py", 0),
        ("p/nul.py", 0),
        ("p/py2.py", 1),
    ]
    assert set(project.modules) == {"p", "p.ok"}


def test_what_is_ignored_is_not_scanned(tmp_path: Path) -> None:
    plant(
        tmp_path,
        {
            ".gitignore": "# comment\n\n*.tmp.py\n/generated/\ncache/**\n!keep.tmp.py\nlogs\\ \n",
            "a.tmp.py": "",
            "keep.tmp.py": "",
            "generated/x.py": "",
            "sub/generated/y.py": "",
            "cache/z.py": "",
            "node_modules/n.py": "",
            "env/pyvenv.cfg": "",
            "env/lib/e.py": "",
            "anyname/pyvenv.cfg": "",
            "anyname/e.py": "",
            "build/lib/b.py": "",
            "src/build/__init__.py": "",
            ".venv/x.py": "",
            "sub/.gitignore": "only_here.py\n",
            "sub/only_here.py": "",
            "only_here.py": "",
            "x.egg-info/y.py": "",
        },
    )
    os.symlink("/usr", tmp_path / "linked")
    found = {m.path for m in scan(Roots([tmp_path])).modules.values()}
    assert found == {"keep.tmp.py", "sub/generated/y.py", "src/build/__init__.py", "only_here.py"}


def test_other_languages_and_folders_are_counted(tmp_path: Path) -> None:
    project = scanned(tmp_path, {"src/a.ts": "x", "src/b.ts": "xy", "go/main.go": "", "README": "==\nTitle\n==\n"})
    assert dict(project.languages) == {"TypeScript": (2, 3), "Go": (1, 0)}
    assert [(f.name, f.files, f.size) for f in project.folders] == [("src", 2, 3), ("go", 1, 0)]
    assert project.readme is not None
    assert project.readme.title == "Title"
    assert project.parts == ()


def test_limits_are_stated_and_do_not_raise(tmp_path: Path) -> None:
    files = {f"m{n:02}.py": "x = 1\n" for n in range(20)}
    plant(tmp_path, files)
    assert scan(Roots([tmp_path]), limits=ScanLimits(files=5)).truncated == "files"
    assert len(scan(Roots([tmp_path]), limits=ScanLimits(python_files=7)).modules) == 7
    assert scan(Roots([tmp_path]), limits=ScanLimits(python_files=7)).truncated == "files"
    assert scan(Roots([tmp_path]), limits=ScanLimits(python_bytes=10)).truncated == "bytes"


def test_half_a_scan_is_no_scan(tmp_path: Path) -> None:
    plant(tmp_path, {"a.py": "", "b.py": ""})
    with pytest.raises(Timeout):
        scan(Roots([tmp_path]), ".", Budget(0))
    with pytest.raises(Cancelled):
        scan(Roots([tmp_path]), ".", Budget(cancelled=lambda: True))


def test_a_scan_is_confined(tmp_path: Path) -> None:
    plant(tmp_path / "in", {"a.py": ""})
    plant(tmp_path, {"secret.py": ""})
    os.symlink(tmp_path, tmp_path / "in" / "out")
    with pytest.raises(OutsideRoots):
        scan(Roots([tmp_path / "in"]), "..")
    with pytest.raises(OutsideRoots):
        scan(Roots([tmp_path / "in"]), "out")
    with pytest.raises(WrongKind):
        scan(Roots([tmp_path / "in"]), "a.py")
    assert set(scan(Roots([tmp_path / "in"])).modules) == {"a"}


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("core", "core"),
        ("Core", "core"),
        ("core.models", "core.models"),
        ("models", "core.models"),
        ("core/models.py", "core.models"),
        ("`core`", "core"),
        ("./core/", "core"),
        ("core/models", "core.models"),
        ("manage.py", "manage"),
        ("test_core", "tests.test_core"),
    ],
)
def test_a_module_is_found_by_any_of_its_names(tmp_path: Path, asked: str, found: str) -> None:
    assert scanned(tmp_path / "shop", SHOP).find(asked).dotted == found


def test_a_name_of_two_modules_is_told_with_both(tmp_path: Path) -> None:
    project = scanned(tmp_path, {"a/__init__.py": "", "b/__init__.py": "", "a/x.py": "", "b/x.py": ""})
    with pytest.raises(NotFound) as two:
        project.find("x")
    assert two.value.near == ("a.x", "b.x")
    with pytest.raises(NotFound) as none:
        project.find("nothing")
    assert set(none.value.near) == {"a", "b"}


def test_the_same_directory_gives_the_same_facts(tmp_path: Path) -> None:
    plant(tmp_path / "shop", SHOP)
    one, two = scan(Roots([tmp_path / "shop"])), scan(Roots([tmp_path / "shop"]))
    assert (one.edges, one.parts, one.problems, list(one.modules)) == (
        two.edges,
        two.parts,
        two.problems,
        list(two.modules),
    )


def test_this_repository_is_scanned_and_its_imports_run_downwards() -> None:
    root = Path(__file__).resolve().parents[3]
    project = scan(Roots([root]))
    assert {"hub", "sessions_app", "traces_app"} <= set(parts(project))
    own = project.modules["traces_app.workspace.roots"]
    (line,) = [c.line for c in own.source.classes if c.name == "Roots"]
    assert (root / own.path).read_text().splitlines()[line - 1] == "class Roots:"
    assert not [
        e for e in project.edges if e.source.startswith("sessions_app.") and e.target.startswith(("traces_app", "hub"))
    ]
