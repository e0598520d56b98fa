"""What the rules say about a message, sentence by sentence; what a rule may cost; how a tool call is read."""

from __future__ import annotations

import importlib
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions_app.protocol.classify import (
    DEFAULT_RULES,
    HEAD,
    KINDS,
    MAX_EFFORT,
    Classification,
    Classifier,
    Kind,
    Rule,
    RuleError,
    _request,
    check_rule,
    default_classifier,
    effort,
    parse_tool_call,
)

# Every line of dialogue in the three seed documents, and every example of their tables.
SEEDS: dict[Kind, str] = {
    "chat": """
        我看到有3个模块，你想重点分析哪个？
        我看到有3个模块：api, core, utils，你想重点分析哪个？
        core模块使用了X架构，需要我详细说明吗？
        core模块使用了分层架构，需要我详细说明吗？
        是的，请详细说明
        是的，请详细说明架构设计和关键组件
        你好
        收到
        明白了
        推荐一个适合今天天气的户外活动
        如果去颐和园划船，明天天气怎么样，适合吗
        颐和园划船，明天天气怎么样
        北京今天晴，25-32℃，空气质量良
        北京今天晴，气温25-32℃，空气质量良好。
        晴，25-32℃，良
        推荐：1.奥森跑步 2.颐和园划船 3.香山徒步
        推荐适合今天天气的户外活动
        明天多云转阴，22-28℃，建议上午去
        For context: [weather_agent] said: 北京今天晴，25-32℃
        [ctx] agent_a: 晴，25-32℃，良
        tell me more about option 4
        I am looking for a lightweight laptop
        Great choice. Do you have any preferred brands?
        show me models under 1,000 dollars
        Here are some options that match.
        """,
    "status_query": """
        当前进度如何？
        """,
    "task": """
        请分析本地项目
        重点分析core模块
        分析core模块
        帮我查询北京今天的天气
        查北京天气
        查天气
        """,
    "tool_call": """
        读取文件X
        """,
}

SENTENCES: dict[Kind, str] = {
    "chat": """
        您好！
        好的。
        好的，谢谢！
        收到，谢谢
        嗯嗯
        OK
        thanks
        Thanks a lot!
        hello there
        got it, thank you
        请
        请。
        Please
        请问你是谁
        请问？
        请重写分析报告
        把这段翻译成英文
        把分析报告翻译成英文
        把这段分析改写一下
        分析这段话并翻译成英文
        分析core模块，然后把结果译成英文
        帮我翻译一下这份分析
        请帮我执行翻译
        translate this analysis
        please translate the analysis into English
        Could you rewrite this analysis?
        analyse this text and translate it into English
        read file a.txt and translate it
        不要分析
        请不要分析core模块
        先别分析
        暂时不用分析
        不用执行了
        取消分析
        停止分析core模块
        don't analyse it yet
        please do not run the tests
        Never run the tests on Friday
        stop the analysis
        分析core模块先不急，再说吧是不是先等等看？没有必要吗
        分析不要了
        analysesomething
        paralyse
        analysis paralysis is real
        analyst wanted
        Analyses of this kind are common
        reanalyse
        runs fine here
        runtime is 3 seconds
        Running the tests now
        run out of memory
        Analysed the core module.
        I analysed the core module yesterday
        We should analyse core some day
        执行官
        执行官是谁
        执行力很强
        首席执行官今天到访
        分析师怎么看
        分析化学是什么
        查询语句是什么
        查询语句是什么？
        查询结果如下：3 条
        搜索引擎是什么
        执行摘要
        分析报告在哪
        分析结果是什么
        分析的结果呢
        分析了core模块
        分析过core模块了
        分析完了
        分析到一半断电了
        分析中
        分析中…
        分析完成：共有 3 个模块
        分析完成：\\ncore模块使用分层架构
        分析core模块完成，没有循环依赖
        分析结果：没有循环依赖
        分析显示core最大
        执行失败
        执行测试失败：3 个用例
        运行正常
        运行时错误
        查询失败了
        查询到 3 条记录
        读取失败
        读取文件失败
        详细架构：\\n- core: 12 个类
        Analysis finished: 3 modules, no cycles
        The analysis is done.
        Analysis of core is complete
        Scan complete.
        Search results: 3
        Run failed with exit code 1
        Check passed
        你想重点分析哪个？
        你想让我分析哪个模块？
        分析哪个？
        分析哪个模块？
        分析什么？
        查询什么？
        分析core模块吗？
        分析core模块需要多久？
        你能分析什么？
        分析？
        要不要我分析core模块？
        需要我分析core模块吗？
        需要我继续吗？
        我来分析core模块
        我正在分析core模块
        正在分析core模块
        让我分析一下
        我可以分析core模块
        我已经分析了core模块
        是分析core模块
        收到分析请求
        谢谢分析core模块
        shall I analyse it in detail?
        Should I run the tests?
        Do you want me to analyse the core module?
        Would you like me to run the tests?
        Which module should I analyse?
        Let me analyse the core module first.
        I'll analyse it
        I can run the tests for you
        Analyse core or utils?
        Run what?
        What is an analysis?
        Why did you run the tests?
        你说“分析core模块”是什么意思
        “分析core模块”这句话我没看懂
        "analyse the core module" was my question
        > 分析core模块
        他说：分析core模块
        进度很好
        进度：3/5
        进度条组件怎么样
        progress bars are hard
        Progress: 40 %
        status: done
        The status is green
        准备好了吗？
        are you ready?
        How are you?
        how far is it to Beijing?
        天气怎么样？
        检查点在哪
        请 /tool add {"a": 1}
        use /tool add {"a": 1}
        `/tool add {}`
        /toolbox
        /tools
        /tool
        I read file a.txt yesterday
        I have read the file.
        read the file yesterday
        read the file, please
        read more books
        readme is missing
        check this out
        check it out!
        list of modules: api, core
        find attached the report
        再见
        介绍一下core模块
        解释这段代码
        core模块很大，分析它很慢
        项目在本地。建议先执行 make test
        对core模块进行分析后发现了循环依赖
        run a risk
        execute permission denied
        Query language is SQL
        """,
    "status_query": """
        进度怎么样
        进度如何？
        当前进度
        目前进度怎么样了？
        现在进度如何
        请问当前进度如何？
        查询当前进度
        帮我查询当前进度
        查询进度
        查询任务进度
        查看会话状态
        汇报一下进度
        告诉我当前进度
        你能告诉我当前进度吗？
        当前状态
        任务状态如何？
        core模块的分析进度如何？
        分析进展如何
        有什么进展？
        有进展吗
        分析到哪了？
        进行到哪一步了
        做到什么程度了？
        分析完成了吗？
        请问分析完成了吗？
        完成了吗
        做完了没有
        还要多久？
        还需要多长时间
        大概还要多久能完成？
        什么时候能完成？
        當前進度如何？
        你好，当前进度如何？
        progress?
        Progress
        any progress?
        any updates yet?
        how far are you?
        How far have you got?
        how far along are you
        what's the status?
        What is the current status?
        what is the status of the analysis?
        Could you tell me the status?
        status update, please
        status?
        check the status
        check progress
        how's the analysis going?
        are you done yet?
        Is it finished?
        is the task done?
        how long will it take?
        how much is left?
        OK, where are we now?
        """,
    "task": """
        分析
        请分析
        请分析一下core模块
        请帮我分析一下本地项目
        麻烦你分析core模块
        你好，请分析本地项目
        好的，分析core模块
        是的，请分析core模块。
        不，分析utils模块
        @terminal-agent-456 请分析本地项目
        继续分析utils
        接下来请深入分析core模块
        你能帮我分析core模块吗？
        能不能分析一下core模块
        我想请你分析core模块
        你可以分析一下core模块吗
        分析core模块，好吗？
        分析core模块，完成后通知我
        分析一下为什么登录会失败
        分析一下这段报错是什么意思
        分析过程中的瓶颈
        分析不同模块之间的依赖
        分析完整的调用链
        分析时间复杂度
        分析前端代码
        分析后端代码
        分析了解程度
        分析员工数据
        分析翻译模块
        分析是否有循环依赖
        分析模块
        分析 core 模块
        分析\\ncore模块
        把core模块分析一下
        请把本地项目扫描一遍
        对core模块进行分析
        请对core模块做一个详细的分析
        做一个core模块的分析
        执行测试
        执行 make test
        执行：make test
        执行任务
        执行长任务
        執行測試
        运行测试
        运行测试直到通过
        请执行脚本
        查询北京今天的天气
        查询北京今天会下雨吗
        查询订单状态
        查询成功的订单
        查一下北京天气怎么样
        请查询数据库里有多少用户
        搜索 class Celery
        扫描本地项目
        检查循环依赖
        统计多少个文件没有测试
        列出所有模块
        列出前10个最大的文件
        读取文件 core模块
        读取文件a.txt并分析其结构
        analyse the core module
        Analyze core
        analyse core
        ANALYSE CORE
        Please analyze the local project
        please analyse the local project.
        Hi! Could you analyse the core module?
        can you please carefully analyse core?
        I'd like you to analyse the core module
        I want you to run the tests
        OK, now analyse utils
        first analyse core, then utils
        analyse the translate module
        analyse why the tests fail
        analyse it
        run the tests
        Run tests
        run pytest -q
        run make test
        Please run all the tests
        run the tests, ok?
        execute the plan
        Execute make test
        search for TODO in core
        search celery in the project
        Search for "class Celery"
        look up the weather in Beijing
        query the weather in Beijing
        find all usages of append
        scan the project
        list the modules
        list files
        check the imports for cycles
        review the core module
        inspect hub/asgi.py
        perform a detailed analysis of core
        start the analysis, please
        read file hub/asgi.py and tell me what it does
        """,
    "tool_call": """
        读取文件 X
        读取文件README.md
        请读取文件 README.md
        读取文件 hub/asgi.py 的内容
        帮我读取一下文件 “设计 文档.md”
        读取文件报告.md
        能不能读取文件 a.txt？
        打开文件 a.txt
        查看文件 sessions_app/apps.py
        读取 README.md
        查看 hub/asgi.py
        讀取檔案 README.md
        read file X
        Read file X.
        read the file X
        read the file hub/asgi.py
        please read the file README.md
        can you read file X?
        read file "my notes.txt"
        show me the file pyproject.toml
        open file a.txt please
        read hub/asgi.py
        cat /etc/hosts
        read the file Makefile
        read the file makefile
        /tool add {"a": 1}
        /tool add {}
        /tool add
        /tool add{"a": 1}
          /tool project.scan {"path": "."}
        /TOOL add {"a": 1}
        /tool add {broken
        """,
}


def lines(table: dict[Kind, str]) -> list[tuple[Kind, str]]:
    return [
        (kind, line[8:].replace("\\n", "\n"))
        for kind, text in table.items()
        for line in text.splitlines()
        if line.strip()
    ]


@pytest.mark.parametrize(("kind", "sentence"), lines(SEEDS))
def test_every_line_of_dialogue_in_the_seeds_has_its_kind(kind: Kind, sentence: str) -> None:
    assert default_classifier().classify(sentence).kind == kind


@pytest.mark.parametrize(("kind", "sentence"), lines(SENTENCES))
def test_a_sentence_has_its_kind(kind: Kind, sentence: str) -> None:
    assert default_classifier().classify(sentence).kind == kind


def test_courtesy_before_a_request_changes_nothing_but_courtesy() -> None:
    classifier = default_classifier()
    for courtesy in ("请", "你好，", "好的，请帮我", "OK, please ", "Hi @cloud-agent-123, could you kindly ", "  \n"):
        assert classifier.classify(courtesy + "分析core模块").kind == "task", courtesy
        assert classifier.classify(courtesy + "介绍一下你自己").kind == "chat", courtesy


def test_a_request_further_down_in_a_report_opens_nothing() -> None:
    report = "core模块有12个类，没有循环依赖。\n下一步：请执行 make test\n/tool add {}\nread file a.txt"
    assert default_classifier().classify(report).kind == "chat"


def test_who_decided_is_written_down() -> None:
    classifier = default_classifier()
    assert classifier.classify("分析core模块") == Classification("task", "task-zh", "rule:task-zh")
    assert classifier.classify("当前进度如何？") == Classification("status_query", "status-zh", "rule:status-zh")
    assert classifier.classify("core模块很大") == Classification("chat", None, "default")
    assert classifier.decide("core模块很大", None) == classifier.classify("core模块很大")
    assert classifier.decide("分析core模块", None) == classifier.classify("分析core模块")


@pytest.mark.parametrize(
    ("content", "requires_execution", "kind"),
    [
        ("是的，请详细说明架构设计和关键组件", True, "task"),  # third seed
        ("你好", True, "task"),
        ("当前进度如何？", True, "task"),
        ("把这段翻译成英文", True, "task"),
        ("读取文件X", True, "tool_call"),
        ('/tool add {"a": 1}', True, "tool_call"),
        ("分析core模块", False, "chat"),
        ("当前进度如何？", False, "chat"),
        ("读取文件X", False, "chat"),
    ],
)
def test_the_senders_word_is_final(content: str, requires_execution: bool, kind: Kind) -> None:
    assert default_classifier().decide(content, requires_execution) == Classification(kind, None, "sender")


def test_an_operators_rule_goes_before_the_built_in_ones() -> None:
    rules = [Rule("deploy", "task", "(部署|deploy)"), Rule("quiet", "chat", "分析core"), *DEFAULT_RULES]
    classifier = Classifier(rules)
    assert classifier.classify("请帮我部署服务").classified_by == "rule:deploy"
    assert classifier.classify("Please DEPLOY it").classified_by == "rule:deploy"
    assert classifier.classify("分析core模块").classified_by == "rule:quiet"
    assert classifier.classify("分析utils模块").kind == "task"


def test_without_rules_everything_is_chat() -> None:
    assert Classifier([]).classify("分析core模块") == Classification("chat", None, "default")


# --- Long and hostile texts --------------------------------------------------------------------------

HOSTILE = [
    *(letter * (256 * 1024) for letter in "a \n.?！，/我分请读r{\"'`@"),
    "分析" * 128 * 1024,
    "请" * 256 * 1024,
    "请 " * 128 * 1024,
    "把" * 256 * 1024 + "分析一下",
    "run " * 64 * 1024,
    "find the what which ?" * 12 * 1024,
    "read file " + "a." * 128 * 1024,
    "read the file " + "a" * 256 * 1024,
    "读取文件" + "文." * 128 * 1024,
    "what is the status " * 13 * 1024,
    "分析当前任务的" * 36 * 1024,
    "a的b的c的" * 40 * 1024 + "进度",
    "/tool " + "a." * 128 * 1024,
    "/tool a " + '{"a":' * 40 * 1024,
]


@pytest.mark.parametrize("content", HOSTILE, ids=lambda content: repr(content[:12]))
def test_a_hostile_text_costs_as_much_as_its_head(content: str) -> None:
    # Bounded by construction: nothing after the head is looked at, and the head is short.
    head = content[: HEAD + 1]
    assert default_classifier().classify(content) == default_classifier().classify(head)
    parse_tool_call(content)


def test_no_rule_may_cost_more_than_its_budget() -> None:
    costs = {rule.name: effort(rule.pattern) for rule in DEFAULT_RULES}
    assert max(costs.values()) <= MAX_EFFORT // 2, costs


def test_a_message_that_goes_on_is_not_taken_for_complete() -> None:
    assert default_classifier().classify("当前进度如何？" + " " * HEAD + "都写在下面的报告里").kind == "chat"
    assert default_classifier().classify("read file a.txt" + " " * HEAD + "was what I did").kind == "chat"
    assert default_classifier().classify("当前进度如何？" + " " * 5).kind == "status_query"


def test_a_long_request_is_a_request_still() -> None:
    assert default_classifier().classify("请分析本地项目，要求如下：\n" + "- 看看这里\n" * 500).kind == "task"
    assert default_classifier().classify('/tool add {"a": "' + "x" * 9999 + '"}').kind == "tool_call"


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$",
        "(a|a)*$",
        "(a|b|ab)*c",
        "(.*)*x",
        ".*.*.*x",
        "(?:a?){60}a{60}",
        "(?:分析|分析一下|分析下)*完",
        r"(\s*,\s*)+x",
        "((((a*)*)*)*)*",
        "(?=(a+)+$)a",
    ],
)
def test_a_pattern_that_could_take_for_ever_is_refused(pattern: str) -> None:
    with pytest.raises(RuleError, match="too long"):
        check_rule(Rule("slow", "task", pattern))


@pytest.mark.parametrize(
    "pattern",
    [
        "部署",
        "(deploy|roll out) .*",
        ".{0,200}部署",
        "(?>a+)+b",
        "a++b",
        "(?:deploy|release)+x",
        r"\d+ [a-z]+",
        "[^。]*部署",
    ],
)
def test_an_ordinary_pattern_is_taken(pattern: str) -> None:
    assert check_rule(Rule("fine", "task", pattern)).pattern == pattern


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        (Rule("x", "task", "("), "regular expression"),
        (Rule("x", "task", "a)|(b"), "regular expression"),
        (Rule("x", "task", r"(a)\1"), "back references"),
        (Rule("x", "task", r"(?P<a>a)(?P=a)"), "back references"),
        (Rule("x", "task", "(" * 5000 + "a" + ")" * 5000), "pattern has|regular expression"),
        (Rule("x", "task", "a{99999999999999999999}"), "regular expression"),
        (Rule("x", "task", ""), "pattern has"),
        (Rule("x", "task", "a" * 8001), "pattern has"),
        (Rule("", "task", "a"), "a name is"),
        (Rule("rule:x", "task", "a"), "a name is"),
        (Rule("x", "system", "a"), "the kind is"),  # type: ignore[arg-type]
    ],
)
def test_a_rule_that_is_not_fit_is_refused_with_its_reason(rule: Rule, reason: str) -> None:
    with pytest.raises(RuleError, match=reason):
        check_rule(rule)
    with pytest.raises(RuleError, match=reason):
        Classifier([rule])


def test_two_rules_with_one_name_are_refused() -> None:
    with pytest.raises(RuleError, match="named x"):
        Classifier([Rule("x", "task", "a"), Rule("x", "chat", "b")])


def test_the_standard_librarys_parser_still_has_what_is_used_of_it() -> None:
    parser: Any = importlib.import_module("re._parser")
    pattern = r"(a|b)(?>c)d*+e{2,3}?[^f](?=g)(?<!h).\d^$"
    operations = [str(operation) for operation, _ in parser.parse(pattern)]
    assert operations == [
        "SUBPATTERN", "ATOMIC_GROUP", "POSSESSIVE_REPEAT", "MIN_REPEAT", "NOT_LITERAL", "ASSERT", "ASSERT_NOT", "ANY", "IN",
        "AT", "AT",
    ]  # fmt: skip


# --- The table of first letters may leave no rule out -------------------------------------------------


def by_every_rule(classifier: Classifier, request: str) -> str:
    for rule in classifier.rules:
        if re.compile(rule.pattern, re.IGNORECASE).match(request):
            return f"rule:{rule.name}"
    return "default"


PIECES = sorted(
    {
        line[i : i + n]
        for table in (SEEDS, SENTENCES)
        for _, line in lines(table)
        for i in (0, 1, 3, 7)
        for n in (1, 2, 5, 12)
    }
)
texts = st.text() | st.lists(st.sampled_from([*PIECES, "请", "，", " ", "?", "？", "\n", "吗"]), max_size=8).map(
    "".join
)


@given(texts)
@settings(max_examples=500, deadline=None)
def test_any_text_has_a_kind_and_the_rule_is_the_first_that_matches(content: str) -> None:
    classifier = default_classifier()
    decision = classifier.classify(content)
    assert decision.kind in KINDS
    assert decision.classified_by == by_every_rule(classifier, _request(content))
    assert classifier.decide(content, True).kind in ("task", "tool_call")
    assert classifier.decide(content, False).kind == "chat"


@given(st.text(max_size=40) | texts, st.sampled_from(["", "/tool ", "/tool x ", "读取文件", "read file ", "/tool x {"]))
@settings(max_examples=300, deadline=None)
def test_parsing_a_tool_call_never_raises(content: str, start: str) -> None:
    call = parse_tool_call(start + content)
    if call is not None:
        name, arguments = call
        assert name
        assert isinstance(arguments, dict)
        assert default_classifier().classify(start + content).kind == "tool_call" or len(start + content) > HEAD


# --- Tool calls ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "call"),
    [
        ('/tool add {"a": 1, "b": [2]}', ("add", {"a": 1, "b": [2]})),
        ('  /tool add{"a": 1}  ', ("add", {"a": 1})),
        ("/tool project.scan", ("project.scan", {})),
        ('/tool mcp:files/read\n{"path": "a b.txt"}', ("mcp:files/read", {"path": "a b.txt"})),
        ("读取文件X", ("read_file", {"path": "X"})),
        ("请读取文件 hub/asgi.py 的内容。", ("read_file", {"path": "hub/asgi.py"})),
        ("帮我读取一下文件 “设计 文档.md”", ("read_file", {"path": "设计 文档.md"})),
        ("读取文件报告.md", ("read_file", {"path": "报告.md"})),
        ("读取 README.md", ("read_file", {"path": "README.md"})),
        ("能不能读取文件 a.txt？", ("read_file", {"path": "a.txt"})),
        ("read file X.", ("read_file", {"path": "X"})),
        ("Please read the file `docs/my-notes.md`!", ("read_file", {"path": "docs/my-notes.md"})),
        ('read file "my notes.txt"', ("read_file", {"path": "my notes.txt"})),
        ("can you read ../a.txt for me?", ("read_file", {"path": "../a.txt"})),
        ("read file ..", ("read_file", {"path": ".."})),
        ("cat /etc/hosts", ("read_file", {"path": "/etc/hosts"})),
        ("你好", None),
        ("分析core模块", None),
        ("读取文件失败", None),
        ("请 /tool add {}", None),
        ("/toolbox {}", None),
        ("/tool", None),
        ("/tool 中文 {}", None),
        ('/tool add {"a": 1', None),
        ('/tool add {"a": 1} and more', None),
        ("/tool add [1]", None),
        ('/tool add "text"', None),
        ("/tool add a=1", None),
        ('/tool add {"a": NaN}', None),
        ('/tool add {"a": 1e999}', None),
        ('/tool add {"a": "\\ud800"}', None),
        ('/tool add {"a": "\\u0000"}', None),
        ('/tool add {"a": ' + "9" * 5000 + "}", None),
        ("/tool add " + '{"a":' * 5000 + "1" + "}" * 5000, None),
    ],
)
def test_a_tool_call_is_read_strictly(content: str, call: tuple[str, dict[str, Any]] | None) -> None:
    assert parse_tool_call(content) == call


def test_the_arguments_of_a_tool_may_be_as_long_as_a_message() -> None:
    text = "x" * (255 * 1024)
    assert parse_tool_call('/tool write {"text": "' + text + '"}') == ("write", {"text": text})


@pytest.mark.parametrize(
    "content", [line for kind, line in lines(SENTENCES) if kind == "tool_call" and "broken" not in line]
)
def test_what_the_rules_call_a_tool_call_can_be_read_as_one(content: str) -> None:
    assert parse_tool_call(content) is not None


def test_every_courtesy_is_recognised_by_its_first_letter() -> None:
    classifier = default_classifier()
    for courtesy in (
        "Thanks",
        "THANK YOU",
        "谢谢你",
        "麻煩",
        "@bob",
        "I’d like you to",
        "明白了",
        "拜托您",
        "ok",
        "嗯嗯嗯",
    ):
        assert classifier.classify(courtesy).classified_by == "rule:chat-courtesy", courtesy
