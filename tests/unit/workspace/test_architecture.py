from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.unit.workspace.trees import SHOP, scanned
from traces_app.workspace.architecture import Architecture, describe, find_architecture

INIT = {"p/__init__.py": "", "q/__init__.py": ""}


def architecture(root: Path, files: Mapping[str, str]) -> Architecture:
    project = scanned(root, {**INIT, **{f"p/{name}": text for name, text in files.items()}})
    return find_architecture(project, project.find("p"))


def test_roles_are_layers_only_where_each_imports_the_next(tmp_path: Path) -> None:
    files = {
        "views.py": "from p import services\n",
        "services.py": "from p import models\n",
        "models.py": "",
        "x.py": "",
    }
    found = architecture(tmp_path / "1", files)
    assert (found.shape, found.groups) == ("roles", (("views",), ("services",), ("models",)))
    assert [(e.source, e.target, e.line) for e in found.evidence] == [
        ("p.views", "p.services", 1),
        ("p.services", "p.models", 1),
    ]
    assert architecture(tmp_path / "2", {**files, "services.py": ""}).shape != "roles"


def test_an_import_upwards_takes_the_claim_of_layers_away(tmp_path: Path) -> None:
    files = {
        "views.py": "from p import services\n",
        "services.py": "from p import models\n",
        "models.py": "from p import views\n",
    }
    assert architecture(tmp_path, files).shape == "tangled"


def test_names_alone_make_no_architecture(tmp_path: Path) -> None:
    found = architecture(tmp_path, {"views.py": "", "services.py": "", "models.py": ""})
    assert (found.shape, found.evidence) == ("flat", ())


def test_three_levels_without_cycles_are_layers(tmp_path: Path) -> None:
    found = architecture(tmp_path, {"top.py": "import p.mid\n", "mid.py": "import p.low\n", "low.py": ""})
    assert (found.shape, found.groups) == ("layers", (("top",), ("mid",), ("low",)))
    assert len(found.evidence) == 2


def test_units_that_mostly_ignore_each_other_are_no_layers(tmp_path: Path) -> None:
    alone = {f"alone{n}.py": "" for n in range(9)}
    found = architecture(tmp_path, {**alone, "top.py": "import p.mid\n", "mid.py": "import p.low\n", "low.py": ""})
    assert found.shape == "none"


def test_two_levels_are_called_two_levels(tmp_path: Path) -> None:
    found = architecture(tmp_path, {"a.py": "import p.base\n", "b.py": "import p.base\n", "base.py": ""})
    assert (found.shape, found.groups) == ("two_levels", (("a", "b"), ("base",)))


def test_a_centre_that_most_import_is_a_star(tmp_path: Path) -> None:
    spokes = {f"s{n}.py": "import p.hub_\n" for n in range(5)}
    found = architecture(tmp_path, {**spokes, "hub_.py": ""})
    assert (found.shape, found.groups[0], len(found.evidence)) == ("star", ("hub_",), 5)


def test_a_base_with_implementations_elsewhere_is_a_family(tmp_path: Path) -> None:
    files = {
        f"{n}.py": f"from p.base import Backend\nclass {n.title()}(Backend): ...\n" for n in ("disk", "mail", "web")
    }
    found = architecture(tmp_path, {**files, "base.py": "\nclass Backend: ...\n"})
    assert (found.shape, found.groups) == ("family", (("Backend",), ("Disk", "Mail", "Web")))
    assert found.evidence_lines[0] == ("Backend", "p/base.py:2")
    assert ("Disk", "p/disk.py:2") in found.evidence_lines


def test_a_base_of_the_same_name_that_is_not_imported_is_no_family(tmp_path: Path) -> None:
    files = {
        f"{n}.py": f"from other import Backend\nclass {n.title()}(Backend): ...\n" for n in ("disk", "mail", "web")
    }
    assert architecture(tmp_path, {**files, "base.py": "class Backend: ...\n"}).shape == "flat"


@pytest.mark.parametrize(
    ("files", "shape"),
    [
        ({}, "single"),
        ({"only.py": ""}, "none"),
        ({"a.py": "import p.b\n", "b.py": "import p.a\n", "c.py": "", "d.py": "", "e.py": ""}, "none"),
        ({"a.py": "import p.b\n", "b.py": "import p.c\n", "c.py": "import p.a\n"}, "tangled"),
    ],
)
def test_no_claim_is_made_where_the_imports_show_none(tmp_path: Path, files: dict[str, str], shape: str) -> None:
    assert architecture(tmp_path, files).shape == shape


def test_the_facts_of_a_part_are_true(tmp_path: Path) -> None:
    project = scanned(tmp_path / "shop", SHOP)
    facts = describe(project, project.find("core"))
    assert (facts.doc, facts.files, facts.classes, facts.functions) == ("The heart of the shop.", 4, 1, 3)
    assert facts.uses == ()
    assert [(u.name, u.imports, u.where) for u in facts.used_by] == [
        ("api", 2, "api/__init__.py:1"),
        ("manage", 1, "manage.py:1"),
    ]
    assert [(u.name, u.where) for u in facts.tested_by] == [("tests.test_core", "tests/test_core.py:1")]
    assert facts.external == (("requests", 1),)
    (item,) = facts.key_classes
    assert (item.name, item.where, item.doc, [m.name for m in item.methods]) == (
        "Item",
        "core/models.py:1",
        "A thing for sale.",
        ["price", "_secret"],
    )
    assert facts.defines == (("VERSION", "core/__init__.py:2"), ("run", "core/__init__.py:5"))
    assert facts.architecture.shape == "roles"
    assert facts.cycles == ()
    (circle,) = describe(project, project.find("utils")).cycles
    assert [(e.source, e.target, e.line) for e in circle] == [("utils.a", "utils.b", 1), ("utils.b", "utils.a", 1)]
