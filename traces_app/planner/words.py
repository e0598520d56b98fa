"""The planner's sentences in both languages; a test holds that both have the same places."""

from __future__ import annotations

from traces_app.workspace.words import Language

ZH = {
    "scan": "扫描源代码",
    "list": "列出目录 {path}",
    "read": "读取文件 {path}",
    "search": "搜索“{query}”",
    "modules": "了解各个模块",
    "module": "查看模块 {module}",
    "module_full": "详细分析模块 {module}",
    "conclude": "归纳结论",
    "ask": "归纳，并询问重点",
    "cycles": "检查循环导入",
    "dependencies": "列出第三方依赖",
    "entry_points": "找出入口",
    "tests": "统计测试",
    "problems": "找出无法解析的文件",
    "call": "调用工具 {tool}",
    "architectures": "各模块的架构：",
    "topic_project": "项目分析",
    "topic_module": "{module}模块分析",
    "can": (
        "我能做：分析项目或模块（模块、类和函数的位置、导入关系、循环导入、架构、第三方依赖、入口、测试）、列出目录、读取文件、搜索文本、"
        "调用已注册的工具（/tool 名称 {{json}}：{tools}）。"
        "例如：“分析本地项目”“重点分析core模块”“读取文件 README.md”“搜索 TODO”。"
    ),
    "none": "无",
    "hello": "你好。{can}",
    "model": "这个请求我做不了：“{quoted}”需要大模型，而这里没有配置。{can}",
    "execute": "这个请求我做不了：“{quoted}”。我只读取，不运行也不修改任何东西。{can}",
    "web": "这个请求我做不了：“{quoted}”。我不能访问网络或外部服务。{can}",
    "outside": "这个请求我做不了：“{quoted}”不是关于这个项目的问题，我没有回答它的工具。{can}",
    "not_understood": "我没有看懂要做什么：“{quoted}”。{can}",
    "which_file": "请说明要读取哪个文件，例如“读取文件 README.md”。{can}",
    "no_such_tool": "没有叫“{quoted}”的工具。已注册的工具：{tools}。",
    "bad_json": '工具“{quoted}”的参数不是一个 JSON 对象。写法：/tool 名称 {{"参数": 值}}。',
    "partly": "其中一部分没有完成：{message}",
    "cut": "（内容太长，这里只有前面一部分；完整内容见附件 {name}。）",
    "cut_bare": "（内容太长，这里只有前面一部分。）",
    "outside_roots": "不在允许读取的目录里：{asked}",
    "not_found": "没有找到：{asked}{near}",
    "near": "。相近的有：{names}",
    "wrong_kind": "不是所需要的文件或目录：{asked}",
    "unreadable": "无法读取：{asked}",
    "too_large": "文件太大，不读取：{asked}",
    "binary": "不是文本文件：{asked}",
    "timeout": "超过了时间限制",
    "invalid_pattern": "搜索式不能用：{asked}",
    "no_roots": "这里没有允许读取的目录（没有配置 roots），所以什么也读不到。",
    "tool_failed": "工具 {asked} 出错了",
    "too_many": "步骤太多，只做了前 {count} 步",
}

EN = {
    "scan": "Scan the source code",
    "list": "List the directory {path}",
    "read": "Read the file {path}",
    "search": "Search for “{query}”",
    "modules": "Look at each module",
    "module": "Look at the module {module}",
    "module_full": "Analyse the module {module} in detail",
    "conclude": "Draw conclusions",
    "ask": "Sum up and ask where to go on",
    "cycles": "Check for import cycles",
    "dependencies": "List third-party dependencies",
    "entry_points": "Find entry points",
    "tests": "Count the tests",
    "problems": "Find files that cannot be parsed",
    "call": "Call the tool {tool}",
    "architectures": "Architecture of each:",
    "topic_project": "project analysis",
    "topic_module": "analysis of the {module} module",
    "can": (
        "I can: analyse a project or a module (modules, where classes and functions are, imports, import cycles, "
        "architecture, third-party dependencies, entry points, tests), list directories, read files, search for text, "
        "and call registered tools (/tool name {{json}}: {tools}). For example: “analyse the project”, “focus on the core "
        "module”, “read file README.md”, “search for TODO”."
    ),
    "none": "none",
    "hello": "Hello. {can}",
    "model": "I cannot do this: “{quoted}” needs a language model, and none is configured here. {can}",
    "execute": "I cannot do this: “{quoted}”. I only read; I run nothing and change nothing. {can}",
    "web": "I cannot do this: “{quoted}”. I cannot reach the web or other services. {can}",
    "outside": "I cannot do this: “{quoted}” is no question about this project, and I have no tool that answers it. {can}",
    "not_understood": "I do not understand what to do: “{quoted}”. {can}",
    "which_file": "Please say which file to read, for example “read file README.md”. {can}",
    "no_such_tool": "There is no tool called “{quoted}”. Registered tools: {tools}.",
    "bad_json": 'The arguments of the tool “{quoted}” are not a JSON object. Write /tool name {{"argument": value}}.',
    "partly": "A part of it was not done: {message}",
    "cut": "(Too long: this is only the beginning; all of it is in the artifact {name}.)",
    "cut_bare": "(Too long: this is only the beginning.)",
    "outside_roots": "Outside the directories that may be read: {asked}",
    "not_found": "Not found: {asked}{near}",
    "near": ". Similar: {names}",
    "wrong_kind": "Not the kind of file or directory that is needed: {asked}",
    "unreadable": "Cannot be read: {asked}",
    "too_large": "The file is too large to be read: {asked}",
    "binary": "Not a text file: {asked}",
    "timeout": "The time limit was reached",
    "invalid_pattern": "The search pattern cannot be used: {asked}",
    "no_roots": "No directory may be read here (no roots are configured), so there is nothing that I could look at.",
    "tool_failed": "The tool {asked} failed",
    "too_many": "Too many steps: only the first {count} were done",
}

_TABLES: dict[Language, dict[str, str]] = {"zh": ZH, "en": EN}


def say(language: Language, key: str, **values: object) -> str:
    return _TABLES[language][key].format(**values)


def capabilities(language: Language, tools: tuple[str, ...]) -> str:
    names = ", ".join(tools[:20]) + (" …" if len(tools) > 20 else "")
    return say(language, "can", tools=names or say(language, "none"))
