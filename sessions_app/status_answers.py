"""What the hub says when somebody asks how far things are: from its rows, at once, in the language of the question."""

from __future__ import annotations

import re
from dataclasses import replace

from sessions_app.hooks import status_hooks
from sessions_app.turn import Turn

_CHINESE = re.compile(r"[\u3400-\u9fff]")
_STATUS_ZH = {
    "created": "尚未开始",
    "active": "进行中",
    "waiting": "等待中",
    "completed": "已完成",
    "timeout": "已超时",
}


def status_answer(question: str, question_id: str, session_pk: int, turn: Turn) -> str:
    """State, turn, who owes an answer (to anything but this question), and what the layers above add (running work)."""
    language = "zh" if _CHINESE.search(question) else "en"
    turn = replace(turn, open_questions=[q for q in turn.open_questions if q.message != question_id])
    turn.settle()
    waiting = turn.waiting_for
    if language == "zh":
        lines = [
            f"会话状态：{_STATUS_ZH[turn.status]}，第 {turn.round} 轮，当前发言者：{turn.current_speaker or '无'}。"
        ]
        lines.append(f"正在等待：{'、'.join(waiting)}。" if waiting else "没有人欠回复。")
    else:
        lines = [f"The session is {turn.status}, round {turn.round}, last speaker: {turn.current_speaker or 'nobody'}."]
        lines.append(f"Waiting for {', '.join(waiting)}." if waiting else "Nobody owes an answer.")
    for hook in status_hooks():
        if sentence := hook(session_pk, language):
            lines.append(sentence)
    return "\n".join(lines)
