from __future__ import annotations

import re
import string
from pathlib import Path

import pytest

from tests.unit.workspace.trees import SHOP, plant, scanned
from traces_app.workspace import report, words
from traces_app.workspace.budget import Budget
from traces_app.workspace.errors import NotFound
from traces_app.workspace.files import list_directory, read_file, search_files
from traces_app.workspace.project import Project
from traces_app.workspace.roots import Roots
from traces_app.workspace.words import Language

LANGUAGES: tuple[Language, ...] = ("zh", "en")


@pytest.fixture
def shop(tmp_path: Path) -> Project:
    return scanned(tmp_path / "shop", SHOP)


def test_both_languages_have_the_same_sentences_with_the_same_places() -> None:
    assert set(words.ZH) == set(words.EN)
    for key, chinese in words.ZH.items():
        places = [
            {name for _, name, _, _ in string.Formatter().parse(text) if name} for text in (chinese, words.EN[key])
        ]
        assert places[0] == places[1] or key == "layers_why", key


def test_the_question_of_the_seed_comes_out(shop: Project) -> None:
    names = ", ".join(p.name for p in shop.parts)
    assert report.question(shop, "zh").startswith(f"我看到有3个模块：{names}，你想重点分析哪个？")
    assert "哪个模块" in report.question(shop, "zh")
    assert report.question(shop, "en") == f"I see 3 modules: {names}; which one should I focus on?"


def test_the_offer_of_the_seed_comes_out(shop: Project) -> None:
    core = shop.find("core")
    summary = report.summary(shop, core, "zh")
    assert summary.splitlines()[-1] == "core模块使用了分层架构（views → services → models），需要我详细说明吗？"
    assert report.summary(shop, core, "en").endswith("(views → services → models); shall I explain it in detail?")
    assert "哪个模块" not in summary


def test_the_details_begin_as_in_the_seed_and_offer_nothing_again(shop: Project) -> None:
    details = report.details(shop, shop.find("core"), "zh")
    assert details.startswith("详细架构：\n")
    assert "详细说明" not in details
    assert "Item（core/models.py:1）——A thing for sale." in details
    assert "core.views → core.services（core/views.py:1）" in details
    assert report.details(shop, shop.find("core"), "en").startswith("Detailed architecture:\n")


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_place_in_a_report_exists(tmp_path: Path, shop: Project, language: Language) -> None:
    texts = [report.overview(shop, language), report.cycles(shop, language), report.entry_points(shop, language)]
    for part in shop.parts:
        texts += [report.summary(shop, part, language), report.details(shop, part, language)]
    places = set(re.findall(r"([\w/.]+\.(?:py|md|toml)):(\d+)", "\n".join(texts), re.ASCII))
    assert len(places) > 10
    for path, line in places:
        assert int(line) <= len((tmp_path / "shop" / path).read_text().splitlines())


def test_an_overview_names_every_module_with_true_numbers(shop: Project) -> None:
    text = report.overview(shop, "en")
    lines = sum(len(text.splitlines()) for path, text in SHOP.items() if path.startswith("core/"))
    assert f"- core (core): 4 files, {lines} lines - The heart of the shop." in text
    assert "README (README.md:3): The shop" in text
    assert "command shop (pyproject.toml:5), manage.py:3" in text
    assert "Third-party dependencies: requests (1 module)" in text
    assert "Import cycles: 1 group, the largest has 2 modules." in text
    assert "Tests: 1 file, 1 test function." in text


def test_reports_are_bounded_and_say_what_they_left_out(tmp_path: Path) -> None:
    files = {f"part{n:03}/__init__.py": f'"""{"x" * 100}"""\n' for n in range(200)}
    project = scanned(tmp_path, files)
    assert len(report.overview(project, "zh", limit=1000)) <= 1100
    assert "还有" in report.overview(project, "zh", limit=1000)
    assert "200个模块" in report.question(project, "zh")
    assert len(report.question(project, "en")) < 300


def test_a_project_without_python_is_described_by_its_folders(tmp_path: Path) -> None:
    project = scanned(tmp_path, {"web/a.ts": "", "server/main.go": "", "README.md": "# Title\n"})
    assert report.question(project, "en") == (
        "I see no Python modules; there are 2 folders: server, web; which one should I focus on?"
    )
    assert "Python" not in report.overview(project, "en")
    assert report.question(scanned(tmp_path / "empty", {}), "zh") == "这里没有可以分析的文件。"


def test_one_module_is_not_asked_about_but_offered(tmp_path: Path) -> None:
    assert (
        report.question(scanned(tmp_path, {"solo/__init__.py": ""}), "zh")
        == "我看到有1个模块：solo，需要我详细说明吗？"
    )


def test_what_was_not_seen_is_said(tmp_path: Path) -> None:
    project = scanned(tmp_path, {"a.py": "x = (\n", "b.py": "", "c.py": ""})
    assert "a.py:1 '(' was never closed" in report.problems(project, "en")
    assert report.problems(scanned(tmp_path / "fine", {"a.py": ""}), "zh") == "所有 Python 文件都能解析。"


def test_an_unknown_module_is_told_with_those_there_are(shop: Project) -> None:
    with pytest.raises(NotFound) as missing:
        shop.find("nope")
    text = report.not_found(missing.value, "nope", shop, "zh")
    assert text.startswith("没有叫“nope”的模块。我看到有3个模块：")
    assert report.not_found(missing.value, "nope", shop, "en").startswith(
        "No module is called “nope”. I see 3 modules: "
    )


@pytest.mark.parametrize("language", LANGUAGES)
def test_files_listings_and_matches_are_shown_within_their_limits(tmp_path: Path, language: Language) -> None:
    roots = Roots([plant(tmp_path, {"a.txt": "line\n" * 5000, "sub/x": ""})])
    listing = report.listing(list_directory(roots, ".", Budget()), language)
    assert "- sub/\n- a.txt  25000 B" in listing
    shown = report.file_text(read_file(roots, "a.txt", Budget()), language, limit=100)
    assert shown.count("line") <= 22
    assert "20" in shown.splitlines()[0]
    found = report.matches(search_files(roots, "line", ".", Budget()), language)
    assert "a.txt:100: line" in found
    assert "a.txt:101" not in found
    nothing = report.matches(search_files(roots, "absent", ".", Budget()), language)
    assert "absent" in nothing


def test_the_language_of_a_text_is_chinese_where_it_has_a_chinese_character() -> None:
    assert words.language_of("分析 core") == "zh"
    assert words.language_of("analyse core") == "en"
