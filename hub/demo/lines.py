"""What the cloud agent says, in both languages, and by which words it knows what it was asked."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Script:
    """The cloud agent's side of the conversation; `{module}` is the one it chooses."""

    opening: str
    asks_which: tuple[str, ...]
    choice: str
    offers_details: tuple[str, ...]
    accepts: str
    goodbye: str


SCRIPTS = {
    "zh": Script(
        opening="请分析本地项目",
        asks_which=("你想重点分析哪个",),
        choice="重点分析{module}模块",
        offers_details=("需要我详细说明吗",),
        accepts="是的，请详细说明{module}模块的架构设计和关键组件",
        goodbye="谢谢，再见",
    ),
    "en": Script(
        opening="Please analyse the local project",
        asks_which=("which one should I focus on", "shall I look at it"),
        choice="Focus on the {module} module",
        offers_details=("shall I explain it in detail",),
        accepts="Yes, please explain the architecture and key components of the {module} module in detail",
        goodbye="Thank you, goodbye",
    ),
}


def counted(number: int, thing: str) -> str:
    """`1 goal`, `2 goals`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
