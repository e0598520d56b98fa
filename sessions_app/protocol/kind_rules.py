"""The built-in rules that decide a message's kind, and the words they are made of; `classify` has their order.

Every repeat is bounded, and possessive (`?+`, `}+`) or atomic (`(?>`) wherever nothing after it wants a character back,
so that a text made to be hostile costs no more than a long one (`classify.effort` counts it).
`\\w` and `\\b` are not used: they take Chinese characters for letters, and "worker模块" would be one word.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["chat", "status_query", "task", "tool_call"]


@dataclass(frozen=True, slots=True)
class Rule:
    """A message whose request starts with `pattern`, in any case, is of `kind`; `name` goes into `classified_by`."""

    name: str
    kind: Kind
    pattern: str


def _any(*patterns: str) -> str:
    return "|".join(patterns)


# --- Punctuation ---------------------------------------------------------------------------------
END = r"(?![A-Za-z0-9_'’-])"  # an English word is over
SEP = r"[\s,，。.!！、;；:：~～…—]"
_SHORT = r"(?=.{1,80}+\s{0,8}+$)"  # the message is short, and one line
STOP = r"[\s。.!！?？~～]{0,8}+$"  # the message is over; without `…`, which marks a message that was cut
BREAK = r"(?=[\s,，.。!！?？:：;；、…]|$)"

# --- Courtesy: what is taken off before the rules look ---------------------------------------------
# Words that end a thought count only before a separator: 收到分析请求 and 是分析core模块 are no requests.
_THOUGHTS = (
    "你好[啊呀]?, 您好, 哈[喽啰], 嗨, 喂, 大家好, 早上好, 上午好, 下午好, 晚上好, 早安, 晚安, 好的?, 好吧, 好嘞, 嗯+, 行吧?, 可以"
    ", 没问题, 是的?, 对的?, 没错, 收到了?, 明白了?, 了解了?, 知道了, 懂了, 不对?, 算了, [谢謝]{2}[你您]?, 多谢, 感谢, 辛苦了?"
    ", 不客气, 没关系, 再[见見], 拜拜, 抱歉, 不好意思, no"
)
_MANNERS_ZH = (
    r"[请請](?:[问問]|[你您])?(?:现在|立即|立刻|马上|务必)?(?:开始)?, 可以开始, 麻[烦煩][你您]?, 劳[烦驾][你您]?, 烦请, 拜托"
    r"[你您]?, [帮幫](?:我们?|忙)?, 替我, [给給]我, 为我, 我(?:想要?|要|需要|希望)[请让叫]?[你您]们?, [你您]们?(?!好), 能不能"
    r", 能否, 可不可以, 可否, 是否可以, (?:能|可以)(?=[^\n]{0,100}(?<!了)[吗嗎])"
    r", 那么?就?, 然后, 接下来, 接着, 另外, 首先, 其次, 最后, 现在, 目前, 马上, 立即, 立刻, 尽快, 同时, 顺便, 务必, 一起, 再, 先"
    r", 只, 单独, [继繼][续續], 重新, 重[点點], [详詳][细細]地?, 深入地?, 仔细地?, 全面地?, 完整地?, 简单地?, 快速地?, 进一步"
)
_MANNERS_EN = (
    "hi, hello, hey, ok(?:ay)?, yes, yep, yeah, sure, great, fine, perfect, all right, alright, right, got it, understood, noted"
    ", bye, good (?:morning|afternoon|evening), thank you(?: (?:very|so) much)?, thanks(?: a lot)?, thx, there, everyone, team"
    ", all, folks, sorry, excuse me, no problem, agreed, now, then, next, first, finally, also, and, so, just, again, please, pls"
    ", plz, kindly, (?:can|could|would|will) you, help me(?: to)?, i(?:['’]d| would) like you to, i (?:want|need) you to"
    ", go ahead and, carefully, briefly, quickly, thoroughly"
)
COURTESIES = (
    *(f"(?:{words})(?={SEP}|$)" for words in _THOUGHTS.split(", ")),
    *_MANNERS_ZH.split(", "),
    *(f"(?:{words}){END}" for words in _MANNERS_EN.split(", ")),
    r"@[A-Za-z0-9][A-Za-z0-9._-]{0,63}",
)
# After one of these a closing question mark is a form of asking ("能分析core模块吗？"); without, it is a question.
ASKS = re.compile(r"请(?!问)|請(?!問)|能|可|帮|幫|麻|劳|please|you", re.IGNORECASE)
ASKED = " \t\n?？吗嗎么呢."

# --- Verbs ----------------------------------------------------------------------------------------
_ACT = r"分析|剖析|[执執]行|[运運]行|[扫掃]描|[检檢]查|审查|审计|评估|调查|排查|诊断|[读讀]取"
_LOOKUP = (
    r"查[询詢]|查一?查|查一下|查找|查看|查阅|搜索|搜[寻尋]|搜一下|检索|[统統]计|列出|列举|列一下|找出|找一下|获取"
    r"|查(?![到出过了完得无收不明清实看房岗验证账])"
)
_ZH = rf"(?>{_ACT}|{_LOOKUP})"
_EN_ACT = rf"(?>(?:analy[sz]e|inspect|examine|investigate|execute|run|scan|check|review|audit){END})"
_EN = (
    r"(?>(?:analy[sz]e|inspect|examine|investigate|execute|run|scan|check|review|audit|search|query|find|list|count"
    rf"|look){END})"
)

# --- Tool calls -----------------------------------------------------------------------------------
# `path` is what `classify.parse_tool_call` takes, quotes and all.
_QUOTED = r""""[^"\n]{1,255}+"|'[^'\n]{1,255}+'|`[^`\n]{1,255}+`|“[^”\n]{1,255}+”|「[^」\n]{1,255}+」"""
_PATH = r"[A-Za-z0-9_./~@-][A-Za-z0-9_./~@+=:\\-]{0,254}+"
_FILE = (  # stands for itself, without the word "file": has an extension, or starts with a slash
    r"""["'`]?+(?:[A-Za-z0-9_./~@-]{0,254}\.[A-Za-z][A-Za-z0-9]{0,9}+|(?:~|\.\.?)?/[A-Za-z0-9_./@-]{1,255}+"""
    r"""|(?:readme|license|makefile|dockerfile|changelog)(?![A-Za-z0-9_.-]))["'`]?+"""
)
_FILE_ZH = r"""[^\s，。！？、：；"'`“”「」]{1,100}\.[A-Za-z0-9]{1,10}+"""
_FILE_EN = (  # after "the file", where "yesterday" is no name: a dot, a slash, a digit or a capital
    r"""(?=[^\s"'`]{0,200}(?:[._/\\0-9-][A-Za-z0-9_]|(?-i:[A-Z]))|makefile|dockerfile|readme|license)"""
    r"""[^\s"'`,;!?]{1,255}+"""
)
_READ_ZH = r"(?>[读讀]取|[读讀]一下|[读讀]|打[开開]|查看|[显顯]示|看一下|看看)(?:一下)?+\s{0,3}+"
_READ_ZH_FILE = rf"{_READ_ZH}(?:本地|这个|那个)?+(?:文件|[档檔]案|文档)\s{{0,3}}+[:：]?+\s{{0,3}}+"
_READ_ZH_END = (
    r"\s?+(?:这个文件|文件)?+的?+(?:全部|完整|所有)?+(?:内容)?+(?:给我看?|吧|一下|可以吗|好吗)?+[\s.。!！?？]{0,8}+$"
)
_READ_EN = r"(?:read|open|show(?: me)?+|cat|view|display|print) {1,3}+(?:the contents? of )?+"
_READ_EN_END = rf"(?: (?:to me|for me|please|now|again)){{0,2}}+{STOP}"
_READ_FORMS_ZH = (
    rf"{_READ_ZH_FILE}(?P<path>{_QUOTED}|{_PATH}|{_FILE_ZH}){_READ_ZH_END}",
    rf"{_READ_ZH}(?P<path>{_FILE}){_READ_ZH_END}",
)
_READ_FORMS_EN = (
    rf"{_READ_EN}file {{1,3}}+(?P<path>{_QUOTED}|[^\s\"'`,;!?]{{1,255}}+){_READ_EN_END}",
    rf"{_READ_EN}(?:the|this|that|my|our|your) file {{1,3}}+(?:named |called )?+(?P<path>{_QUOTED}|{_FILE_EN})"
    rf"{_READ_EN_END}",
    rf"{_READ_EN}(?P<path>{_FILE}){_READ_EN_END}",
)
READ_FORMS = tuple(re.compile(form, re.IGNORECASE) for form in (*_READ_FORMS_ZH, *_READ_FORMS_EN))


def _unnamed(*forms: str) -> str:
    return _any(*forms).replace("(?P<path>", "(?:")


# --- Questions about this session -----------------------------------------------------------------
_WORK = r"(?:任务|分析|执行|扫描|测试|检查|查询|处理|工作|项目|会话|对话|[A-Za-z0-9_.-]{1,32}+)(?:模块)?+"
_NOW = r"[当當]前|现在|目前|今天|整体|总体|本次|这次|这个|这边|我们|大家"
_TELL = r"(?>查[询詢]|查看|查一下|看一下|看看|看|汇报|报告|说一下|说说|告诉我|告知|同步|更新|了解)(?:一下|下)?+\s?+"
_HOW = (
    r"(?:(?:现在|目前)?+(?:是|到|有)?+(?:如何|怎么?[样樣]|咋样|多少|什么|哪(?:里|儿|一?步)?+|百分之几)(?:了|呢|啦)?+"
    r"|[呢吧]|给我)?+"
)
_DONE = r"(?:完成|做完|跑完|弄完|搞定|结束|执行完|处理完|扫描完|分析完|分析好|弄好|做好|完|好)"
_STATUS_ZH = _any(
    rf"(?:{_TELL})?+(?:(?:{_NOW}|{_WORK})的?+){{0,3}}+[进進][度展](?:情况)?+{_HOW}{STOP}",
    rf"(?:{_TELL})?+(?:(?:{_NOW}|任务|会话|对话|分析|执行)的?+){{0,3}}+(?:[状狀][态態]|状况){_HOW}{STOP}",
    rf"有(?:没有|什么|啥)新?+的?+进展{STOP}|有新?+的?+进展(?:了)?+(?:[吗嗎么]|没有?+|\s?+[?？]){STOP}",
    rf"(?:{_NOW}|{_WORK}){{0,2}}+(?:进行|做|干|跑|推进|进展)?+到(?:哪|什么|第几)(?:里|儿|一?步|程度|个?阶段|地步)?+"
    rf"了?+[呢啊]?+{STOP}",
    rf"(?:{_WORK}|大概|大约){{0,2}}+还(?:需要|要|得|剩|差)(?:多久|多长时间|多少时间|多少)"
    rf"(?:能?(?:完成|做完|结束|好))?+{STOP}",
    rf"(?:{_WORK}){{0,2}}+(?:什么时候|多久)(?:才?[能会可]以?)?+{_DONE}{STOP}",
    rf"(?:{_WORK}){{0,2}}+(?:都|已经|全部)?+{_DONE}(?:了(?:[吗嗎么]|没有?+)|没有){STOP}",
    r"(?:任务|分析|执行|扫描|测试|检查|查询|处理|工作|进行|做|跑){1,2}+"
    rf"(?:(?:得|的)(?:怎么?[样樣]|如何|咋样)了?|(?:怎么?样|咋样)了)[呢啊]?+{STOP}",
)
_IT = (
    r"(?:the |this |that |our |your )?+(?:current )?+(?:task|analysis|session|trace|work|job|run|scan|conversation|it)"
)
_STATUS_EN = _any(
    r"(?:(?:what(?:['’]?s| is| are)|how(?:['’]?s| is)|tell me|show(?: me)?+|check|get|report|give me|query"
    r"|send(?: me)?+|share|(?:can|could|may) (?:i|we) (?:have|get)) )?+(?:on )?+(?:the |an? |your |any |our )?+"
    r"(?:current |latest |overall |quick |task |session )?+"
    r"(?:status|progress|state of play|eta)(?: (?:update|report))?+"
    rf"(?: (?:of|on|with|for) {_IT})?+(?:,? (?:so far|now|please|yet|right now|today|going|coming along)){{0,2}}+{STOP}",
    rf"any (?:updates?+|news|progress)(?: (?:on|with) {_IT})?+(?: (?:yet|so far|please))?+{STOP}",
    r"how far(?: along)?+ (?:are|have|did) (?:you|we|they)"
    rf"(?: (?:got(?:ten)?+|get|come|along|now|so far|already|yet|with)){{0,3}}+(?: {_IT})?+{STOP}",
    rf"how far (?:along )?+is {_IT}{STOP}",
    r"how(?:['’]?s| is) (?:the |your )(?:task|analysis|work|job|run|scan) (?:going|coming along|doing|progressing)"
    rf"(?: so far)?+{STOP}",
    r"(?:are (?:you|we|they)|have you|did you|is it|is (?:the|your) (?:task|analysis|work|job|run|scan)) (?:already |all )?+"
    rf"(?:done|finished|finish|complete)(?: (?:with )?+{_IT})?+(?: (?:yet|already|now))?+{STOP}",
    r"how (?:long|much longer|much more time) (?:will|does|is) (?:it|this|that) (?:still )?+(?:take|need)"
    rf"(?: to finish)?+{STOP}",
    rf"how much (?:longer|more time|(?:is|work is|time is) left){STOP}",
    rf"where (?:are we|do we stand|do you stand)(?: now| with it)?+{STOP}",
)

# --- Chat that opens like a request ----------------------------------------------------------------
_NEGATION = (
    r"不要|不用|不需要|不必|不准|不能|不可以|无需|无须|别(?!的|人|名)|暂不|暂时不|禁止|严禁|停止|停下|取消"
    rf"|(?:do not|don['’]?t|never|stop|cancel|abort|no need|not|without|no longer){END}"
)
_SPEAKER = (
    r"我(?!们)|让我|讓我|正在|(?:是否|需不需要|需要|要不要|要|想不想|想要?|希望|是不是需要|用不用)(?:让|由)?我"
    r"|(?:i|i['’](?:m|ve|ll|d)|let me|shall (?:i|we)|should (?:i|we)|may i|can i|could i|do you (?:want|need|like)"
    rf"|like me to){END}"
)
_MODEL = (
    rf"(?>{_ZH}|{_EN}|read |open |show )[^\n]{{0,250}}?"
    r"(?:[译譯][成为]|润色|重[写寫](?!规则|模块|引擎|[前后的])|改[写寫]"
    r"|(?<!的)翻[译譯](?!模块|脚本|代码|服务|文件|组件|包|类|函数|功能|程序|流程|系统|接口|测试|器|质量|插件)"
    r"|(?<![A-Za-z0-9_./-])(?<!the )(?:translate|rewrite|rephrase|paraphrase|proofread)(?![A-Za-z0-9_-]|[./][A-Za-z0-9]"
    r"| (?:module|package|function|class|script|service|file|rule|engine|step)))"
)
_REPORT_ZH = _any(
    # What makes the verb past, a state or part of a noun; the exceptions begin another word (了解, 过程, 完整).
    rf"{_ZH}(?:了(?!解)|过(?![程滤期去渡载敏往])|完(?![整美全善成毕])|到(?![达货期])|出(?![租口错版入勤行])|"
    rf"得(?![分失票])|着(?!火)|中(?={SEP}|$)|的(?!士)|是(?!否|不是)|不(?![同良足合规确一符稳])|在(?=[哪这那此\sA-Za-z0-9])"
    r"|已(?:经|完成|结束|开始|停止|失败|取消)|有误|[很太]|非常|显示|表明|认为|指出|可知|发现(?!的)|无(?:误|异常|问题|法|需)|好[了啦]"
    r"|[前后](?![端台面续几一二三五十0-9])|之[前后]|时(?![间序长区延刻])|[下起]来|下去)",
    r"(?:分析|剖析|[检檢]查|[扫掃]描|评估|审查|[统統]计)(?:结果|报告|情况|结论)?\s?[:：]",
    rf"{_ZH}(?!一下|下)(?![^\n]{{0,60}}(?:为什么|为何|原因|是否|怎么|如何|哪|直到|确保|如果))"
    r"[^\n，。！？：,:!?]{0,40}?(?:失败|出错|报错|超时|成功|完成|完毕|结束|通过|正常|良好)(?:[了后，。：！,:!.\s…]|$)",
)
_REPORT_EN = (
    r"(?:analy[sz]e|analysis|scan|search|query|check|review|audit|execution|run|tests?|task)(?: of [^\n.:]{1,60}?)? "
    r"(?:is |was |has |have |are |were )?+(?:now |been |just |all )?+"
    r"(?:finished|done|completed?|failed|succeeded|passed|results?|reports?|ok|found|shows?|took|started"
    rf"|running|in progress){END}"
)
_NOUN_ZH = _any(
    r"分析(?:师(?!生)|员(?!工)|家(?![庭族长具电])|仪(?![表式])|法(?![律院规国语人])"
    r"|学(?![生习校术历科])|化学|哲学|人士)",
    r"[执執]行(?:官|力(?!学)|者|董事|长(?![任时])|人(?![物工员群])|层|摘要|副?总裁|主席|委员)",
    r"(?:分析|剖析|执行|运行|查询|搜索|检索|统计|扫描|检查|评估|审查)(?:结果|结论|报告|情况)"
    rf"(?:[是呢吗已有出很太不为怎如来给发见请正没还]|在[哪这那]|什么|显示|表明|{BREAK})",
    rf"(?:查[询詢](?:语句|语言)|搜索引擎)(?:[是呢吗已有很太不为怎如的和]|在[哪这那]|什么|{BREAK})",
    # Nouns that are good objects as well (执行任务, 分析模块): only with a predicate.
    r"(?:分析|执行|运行|查询|搜索|检索|统计|扫描|检查|评估|审查)"
    r"(?:任务|请求|服务|流程|步骤|过程|工具|方法|方式|功能|模块|能力|接口|条件|参数|环境|计划|脚本|次数|速度|性能|时间|数据"
    r"|日志|状态|效率|思路|工作|系统|平台|模型|器|点|站|框|量)"
    r"(?:是(?!否)|在[哪这那]|呢|[吗么][?？]?$|已|[很太]|怎么|如何|什么|正在|没|还没|尚未|出(?:来|错|问题)|挂|崩"
    r"|不(?:工作|可用|能用|行|正常|对))",
)
_QUESTION_ZH = _any(
    rf"{_ZH}(?:一下)?(?:哪一?[个些里种项块]?|什么(?!是)|啥|谁)[^\s，。！]{{0,4}}[?？呢啊]{{0,3}}$",
    rf"{_ZH}(?:一下)?\s?[?？]",
    # With 一下 it is an order to find out; 好吗, 可以吗, 行吗, 方便吗 ask for agreement only.
    rf"(?:{_ACT})(?!一下)[^\n]{{0,60}}?(?:多久|多长时间|了没有?|是什么意思|什么意思|对不对|难不难|会怎么?样|会发生什么"
    r"|有什么(?:风险|影响|后果|用)|(?<![好以行便能])[吗嗎])[?？\s]{0,4}$",
    rf"(?:{_ACT})(?!一下)(?![^\n]{{0,60}}(?:为什么|为何|原因|是否|有没有))[^\n]{{0,60}}?(?<![吗嗎好行样])[?？]$",
)
_QUESTION_EN = _any(
    rf"{_EN_ACT}[^\n]{{0,390}}(?<!ok)(?<!okay)(?<!alright)(?<!right)\?\s{{0,4}}$",
    rf"{_EN} (?:what|which|who|where|how)(?: [^\s?]{{1,30}}+){{0,2}}\?\s{{0,4}}$",
)

# --- Tasks ----------------------------------------------------------------------------------------
_OBJECT_ZH = _any(
    rf"[把將将][^\n，。！？,!?]{{1,40}}?{_ZH}(?:一下|一遍|一次|出来)(?:吧|给我|好吗|可以吗)?+{STOP}",
    r"(?:对|對|针对|针對|就|关于)[^\n，。！？,!?]{1,40}?(?>进行|做|来|作)(?:一[个次下番遍些]|[个次下番遍])?+"
    r"(?:详细|深入|全面|简单|完整|初步)?+的?+(?>分析|[检檢]查|[扫掃]描|评估|审查|[统統]计|查[询詢])(?:一下|吧)?+"
    rf"{BREAK}(?![^\n]{{0,60}}(?:发现|得出|显示|完成|结果))",
    rf"(?:进行|做|来|给出)一?+[个次份][^\n，。！？,!?]{{0,40}}?(?>分析|[检檢]查|[扫掃]描|评估|审查)吧?+{STOP}",
)
_A = r"(?:the|all|every|each|any|some|this|that|these|those|my|our|your|its|an?)"
_TASK_EN = _any(
    rf"(?:analy[sz]e|inspect|examine|investigate|execute){END}(?!\s{{0,2}}[?:])"
    r"(?! (?:permission|bit|access|only|error))",
    r"(?:do|perform|make|start|begin|give me|run|conduct) (?:an? |the |another |some )?+(?:[a-z]{1,20}+ ){0,2}?"
    rf"(?:analysis|scan|review|audit)(?:{STOP}|,| (?:of|for|on|in|over) )",
    r"(?:look up|look into|look for|find out|search for|grep) {1,3}+[^\s?]",
)
_TASK_RUN_EN = _any(
    rf"run {{1,3}}+(?:{_A}{END}(?! (?:risk|fever|bit|while|lot))|(?:it|them){END}|(?:unit |integration )?tests?{END}"
    r"|(?:pytest|make|npm|python3?|cargo|go|bash|sh|docker|git|ruff|mypy|celery|manage\.py)(?![A-Za-z])|[`\"'./$])",
    r"(?:scan|search|query|check|review|audit|list|find|count) {1,3}+(?!(?:it|this|that) out)"
    rf"(?:{_A}{END}|(?:it|them){STOP}|for |if |whether |how many |where "
    r"|(?:files|modules|classes|directories|imports|usages|project|directory)(?![A-Za-z])|[`\"'./]"
    r"|[A-Za-z0-9_-]{1,60}+[._/][A-Za-z0-9])",
    r"(?:search|query|find) {1,3}+(?!(?:results?|engines?|terms?|query|queries|failed|finished|done|functions?|index|is"
    r"|was|has|took|it|that|them|me|him|her|you|out|below|attached|enclosed|language|plans?|parameters?|strings?)"
    rf"{END})[A-Za-z][^\s,.:]",
)
_TASK_READ_EN = rf"{_READ_EN}(?:the |this |that )?+(?:file {{1,3}}+{_PATH}|{_FILE})(?:,| and | then )"

DEFAULT_RULES: tuple[Rule, ...] = (
    Rule("tool-slash", "tool_call", r"/tool\s{1,8}[A-Za-z_][A-Za-z0-9_.:/-]{0,127}+(?:\s|\{|…|$)"),
    Rule("tool-read-zh", "tool_call", _unnamed(*_READ_FORMS_ZH)),
    Rule("tool-read-en", "tool_call", _unnamed(*_READ_FORMS_EN)),
    Rule("status-zh", "status_query", rf"{_SHORT}(?:{_STATUS_ZH})"),
    Rule("status-en", "status_query", rf"{_SHORT}(?:{_STATUS_EN})"),
    Rule("chat-courtesy", "chat", STOP),
    Rule("chat-negation", "chat", _NEGATION),
    Rule("chat-speaker", "chat", _SPEAKER),
    Rule("chat-model", "chat", _MODEL),
    Rule("chat-report-zh", "chat", _REPORT_ZH),
    Rule("chat-report-en", "chat", _REPORT_EN),
    Rule("chat-noun-zh", "chat", _NOUN_ZH),
    Rule("chat-question-zh", "chat", _QUESTION_ZH),
    Rule("chat-question-en", "chat", _QUESTION_EN),
    Rule("task-zh", "task", _ZH),
    Rule("task-object-zh", "task", _OBJECT_ZH),
    Rule("task-en", "task", _TASK_EN),
    Rule("task-run-en", "task", _TASK_RUN_EN),
    Rule("task-read-en", "task", _TASK_READ_EN),
)
