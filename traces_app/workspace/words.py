"""The sentences of reports in both languages; `say` fills them in. A test holds that both have the same places."""

from __future__ import annotations

import string
from collections.abc import Iterable
from typing import Literal

Language = Literal["zh", "en"]

ZH = {
    "and_more": "{items} 等 {total} 个",
    "more_lines": "……（还有 {count} 行没有列出）",
    "doc": "——{doc}",
    "at": "{what}（{where}）",
    # the project
    "project": "项目 {name}：{files} 个文件。",
    "project_python": "项目 {name}：{files} 个文件，其中 Python 模块 {modules} 个（测试除外），共 {lines} 行。",
    "readme": "README（{where}）：{title}",
    "languages": "语言：{items}",
    "language": "{name} {files} 个文件",
    "folders": "顶层目录：{items}",
    "folder": "{name}（{files} 个文件）",
    "parts": "模块：",
    "part": "- {name}（{path}）：{files} 个文件，{lines} 行{doc}",
    "more_parts": "- 另外 {count} 个：{items}",
    "tests": "测试：{files} 个文件，{tests} 个测试函数。",
    "no_tests": "测试：没有找到。",
    "entry_points": "入口：{items}",
    "no_entry_points": "入口：没有找到主程序或脚本。",
    "entry_main": "{where}",
    "entry_script": "命令 {name}（{where}）",
    "dependencies": "第三方依赖：{items}",
    "dependency": "{name}（{count} 个模块使用）",
    "no_dependencies": "第三方依赖：没有导入标准库以外的包。",
    "no_cycles": "循环导入：没有。",
    "cycles": "循环导入：{count} 组，最大的一组有 {size} 个模块。",
    "cycle": "- {size} 个模块，例如 {circle}",
    "problems": "无法解析的文件：{count} 个：{items}",
    "problem": "{where} {message}",
    "no_problems": "所有 Python 文件都能解析。",
    "truncated": "注意：项目太大，只看了前 {files} 个文件。",
    "nothing": "这里没有可以分析的文件。",
    "which_module": "我看到有{count}个模块：{names}，你想重点分析哪个？请告诉我是哪个模块。",
    "which_module_of_many": "我看到有{count}个模块：{names} 等，你想重点分析哪个？请告诉我是哪个模块。",
    "which_folder": "我没有看到 Python 模块；这里有{count}个目录：{names}，你想重点分析哪个？请告诉我是哪个目录。",
    "which_folder_of_many": "我没有看到 Python 模块；这里有{count}个目录：{names} 等，你想重点分析哪个？请告诉我是哪个目录。",
    "one_module": "我看到有1个模块：{names}，需要我详细说明吗？",
    "no_module": "没有叫“{asked}”的模块。",
    "several_modules": "叫“{asked}”的模块不止一个：{names}。请说出全名。",
    # one part
    "summary": "{name}模块（{path}）：{files} 个文件，{lines} 行，{classes} 个类，{functions} 个函数{doc}",
    "summary_uses": "它导入：{items}",
    "summary_uses_nothing": "它不导入项目里的其他模块。",
    "summary_used_by": "被导入：{items}",
    "summary_used_by_nothing": "项目里没有其他模块导入它。",
    "use": "{name}（{count} 处，如 {where}）",
    "offer": "{name}模块使用了{style}架构{why}，需要我详细说明吗？",
    "offer_none": "从导入关系看不出{name}模块有固定的架构{why}，需要我详细说明吗？",
    "details": "详细架构：",
    "built": "{name}模块使用了{style}架构{why}。",
    "built_none": "从导入关系看不出{name}模块有固定的架构{why}。",
    "evidence": "依据：{items}",
    "import": "{source} → {target}（{where}）",
    "units": "组成：{items}",
    "unit": "{name} {lines} 行",
    "key_classes": "关键组件：",
    "class": "- {name}{bases}（{where}）{doc}",
    "methods": "  方法：{items}",
    "method": "{name}:{line}",
    "key_functions": "主要函数：{items}",
    "defines": "定义的名字：{items}",
    "external": "第三方依赖：{items}",
    "tested_by": "测试它的模块：{items}",
    "part_entry_points": "入口：{items}",
    "part_cycles": "循环导入：",
    "part_no_cycles": "循环导入：没有。",
    "part_problems": "无法解析的文件：{items}",
    # shapes
    "roles": "分层",
    "roles_why": "（{items}）",
    "layers": "单向分层",
    "layers_why": "（{count} 层，没有循环：{items}）",
    "two_levels": "两层",
    "two_levels_why": "（{items}）",
    "tangled": "相互导入的",
    "tangled_why": "（在同一个循环里：{items}）",
    "family": "“基类＋实现”",
    "family_why": "（基类 {base}，实现：{items}）",
    "star": "星形",
    "star_why": "（以 {centre} 为中心，{count} 个子模块导入它）",
    "flat": "扁平",
    "flat_why": "（{count} 个子模块互不导入）",
    "single": "单文件",
    "none_why": "（{count} 个子模块之间有 {edges} 处导入，没有形成分层或中心）",
    "none_alone_why": "（只有一个子模块）",
    "down": " → ",
    "comma": "、",
    # files
    "listing": "{path} 里有 {count} 项：",
    "listing_cut": "{path} 里有很多项，这里是前 {count} 项：",
    "listing_hidden": "（另有 {count} 个缓存、环境之类的目录没有列出）",
    "file": "{path}（第 {first}–{last} 行，共 {total} 行）：",
    "file_empty": "{path} 在这个范围里没有内容（共 {total} 行）。",
    "file_cut": "（太长，只显示到第 {last} 行）",
    "file_replaced": "（文件不是 UTF-8，不认识的字节用 � 代替）",
    "found": "“{query}”找到 {count} 处（看了 {files} 个文件）：",
    "found_nothing": "“{query}”没有找到（看了 {files} 个文件）。",
    "stopped_matches": "（结果太多，只列出前 {count} 处）",
    "stopped_files": "（文件太多，没有全部看完）",
    "stopped_bytes": "（内容太多，没有全部看完）",
    "stopped_time": "（时间到了，没有全部看完）",
}

EN = {
    "and_more": "{items} and more, {total} in all",
    "more_lines": "… ({count:more line,more lines})",
    "doc": " - {doc}",
    "at": "{what} ({where})",
    "project": "Project {name}: {files:file,files}.",
    "project_python": "Project {name}: {files:file,files}, of them {modules:Python module,Python modules} "
    "(tests not counted) with {lines:line,lines}.",
    "readme": "README ({where}): {title}",
    "languages": "Languages (files): {items}",
    "language": "{name} ({files})",
    "folders": "Top-level folders: {items}",
    "folder": "{name} ({files:file,files})",
    "parts": "Modules:",
    "part": "- {name} ({path}): {files:file,files}, {lines:line,lines}{doc}",
    "more_parts": "- {count} more: {items}",
    "tests": "Tests: {files:file,files}, {tests:test function,test functions}.",
    "no_tests": "Tests: none found.",
    "entry_points": "Entry points: {items}",
    "no_entry_points": "Entry points: no main program or script found.",
    "entry_main": "{where}",
    "entry_script": "command {name} ({where})",
    "dependencies": "Third-party dependencies: {items}",
    "dependency": "{name} ({count:module,modules})",
    "no_dependencies": "Third-party dependencies: nothing outside the standard library is imported.",
    "no_cycles": "Import cycles: none.",
    "cycles": "Import cycles: {count:group,groups}, the largest has {size} modules.",
    "cycle": "- {size} modules, for example {circle}",
    "problems": "Files that cannot be parsed: {count}: {items}",
    "problem": "{where} {message}",
    "no_problems": "All Python files can be parsed.",
    "truncated": "Note: the project is too large, only the first {files} files were looked at.",
    "nothing": "There is no file here that I could analyse.",
    "which_module": "I see {count} modules: {names}; which one should I focus on?",
    "which_module_of_many": "I see {count} modules: {names} and others; which one should I focus on?",
    "which_folder": "I see no Python modules; there are {count} folders: {names}; which one should I focus on?",
    "which_folder_of_many": "I see no Python modules, but {count} folders: {names} and others; which one should I focus on?",
    "one_module": "I see 1 module: {names}; shall I explain it in detail?",
    "no_module": "No module is called “{asked}”.",
    "several_modules": "More than one module is called “{asked}”: {names}. Please give the full name.",
    "summary": "The {name} module ({path}): {files:file,files}, {lines:line,lines}, {classes:class,classes}, "
    "{functions:function,functions}{doc}",
    "summary_uses": "It imports: {items}",
    "summary_uses_nothing": "It imports no other module of the project.",
    "summary_used_by": "Imported by: {items}",
    "summary_used_by_nothing": "No other module of the project imports it.",
    "use": "{name} ({count:import,imports}, e.g. {where})",
    "offer": "The {name} module uses a {style} architecture{why}; shall I explain it in detail?",
    "offer_none": "The imports show no fixed architecture in the {name} module{why}; shall I explain it in detail?",
    "details": "Detailed architecture:",
    "built": "The {name} module uses a {style} architecture{why}.",
    "built_none": "The imports show no fixed architecture in the {name} module{why}.",
    "evidence": "Evidence: {items}",
    "import": "{source} → {target} ({where})",
    "units": "Consists of: {items}",
    "unit": "{name} ({lines:line,lines})",
    "key_classes": "Key components:",
    "class": "- {name}{bases} ({where}){doc}",
    "methods": "  methods: {items}",
    "method": "{name}:{line}",
    "key_functions": "Main functions: {items}",
    "defines": "Defines: {items}",
    "external": "Third-party dependencies: {items}",
    "tested_by": "Tested by: {items}",
    "part_entry_points": "Entry points: {items}",
    "part_cycles": "Import cycles:",
    "part_no_cycles": "Import cycles: none.",
    "part_problems": "Files that cannot be parsed: {items}",
    "roles": "layered",
    "roles_why": " ({items})",
    "layers": "one-way layered",
    "layers_why": " ({count} layers without cycles: {items})",
    "two_levels": "two-level",
    "two_levels_why": " ({items})",
    "tangled": "mutually importing",
    "tangled_why": " (in one cycle: {items})",
    "family": "base-and-implementations",
    "family_why": " (base {base}, implementations: {items})",
    "star": "star-shaped",
    "star_why": " (around {centre}, which {count} submodules import)",
    "flat": "flat",
    "flat_why": " ({count} submodules that do not import one another)",
    "single": "single-file",
    "none_why": " ({count} submodules with {edges:import,imports} between them, neither layers nor a centre)",
    "none_alone_why": " (there is only one submodule)",
    "down": " → ",
    "comma": ", ",
    "listing": "{path} has {count:entry,entries}:",
    "listing_cut": "{path} has many entries; these are the first {count}:",
    "listing_hidden": "({count} more, such as caches and environments, are not shown)",
    "file": "{path} (lines {first}–{last} of {total}):",
    "file_empty": "{path} has nothing in that range ({total:line,lines}).",
    "file_cut": "(too long, shown up to line {last})",
    "file_replaced": "(the file is not UTF-8; bytes that are no text are shown as �)",
    "found": "“{query}”: {count:match,matches} ({files:file,files} searched):",
    "found_nothing": "“{query}” was not found ({files:file,files} searched).",
    "stopped_matches": "(too many; these are the first {count})",
    "stopped_files": "(too many files, not all were searched)",
    "stopped_bytes": "(too much text, not all was searched)",
    "stopped_time": "(out of time, not all was searched)",
}

_TABLES: dict[Language, dict[str, str]] = {"zh": ZH, "en": EN}


class _Sentences(string.Formatter):
    """`{files:file,files}` is `1 file` or `2 files`."""

    def format_field(self, value: object, format_spec: str) -> str:
        if not format_spec:
            return str(value)
        one, _, many = format_spec.partition(",")
        return f"{value} {one if value == 1 else many}"


_sentences = _Sentences()


def say(language: Language, key: str, **values: object) -> str:
    return _sentences.vformat(_TABLES[language][key], (), values)


def enumerate_items(language: Language, items: Iterable[str], limit: int, total: int | None = None) -> str:
    """`a, b, c`, or the first `limit` of them and how many there are in all."""
    chosen = list(items)
    total = len(chosen) if total is None else total
    text = say(language, "comma").join(chosen[:limit])
    return text if total <= limit else say(language, "and_more", items=text, total=total)


def language_of(text: str) -> Language:
    """Chinese where there is a Chinese character, since names and paths in it are English anyway."""
    return "zh" if any("一" <= c <= "鿿" or "㐀" <= c <= "䶿" for c in text) else "en"
