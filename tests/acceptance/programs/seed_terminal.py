"""The terminal agent of the third seed document, as written: only the import, the address and the analysis are ours.

It is the whole program: nothing starts a loop, the registered handlers keep the process alive.
"""

import os
from pathlib import Path

from hub.client import A2ASessionClient
from traces_app.workspace.architecture import describe
from traces_app.workspace.python_project import scan
from traces_app.workspace.roots import Roots

ROOT = Path(os.environ["PROJECT"])


async def analyze_project() -> list[str]:
    return [part.name for part in scan(Roots([ROOT])).parts]


async def analyze_module(name: str) -> dict[str, str]:
    project = scan(Roots([ROOT]))
    return {"architecture": describe(project, project.find(name)).architecture.shape}


async def deep_analyze(name: str) -> str:
    project = scan(Roots([ROOT]))
    return "\n".join(f"{cls.name} {cls.where}" for cls in describe(project, project.find(name)).key_classes)


# --- from here on it is the seed's text ---
client = A2ASessionClient(os.environ["HUB_URL"], "terminal-agent-456", os.environ["HUB_API_KEY"])


# 1. 监听新对话
@client.on_new_session
async def handle_new_session(session_id, initial_message):  # type: ignore[no-untyped-def]
    # 分析项目
    modules = await analyze_project()

    # 询问用户
    await client.send_message(
        session_id,
        f"我看到有{len(modules)}个模块：{', '.join(modules)}，你想重点分析哪个？",
    )


# 2. 处理后续消息
@client.on_message
async def handle_message(msg):  # type: ignore[no-untyped-def]
    if "core模块" in msg["content"]:
        # 执行分析
        result = await analyze_module("core")

        # 返回结果并询问
        await client.send_message(
            msg["session_id"],
            f"core模块使用了{result['architecture']}架构，需要我详细说明吗？",
        )

    elif "详细说明" in msg["content"]:
        # 深度分析
        details = await deep_analyze("core")
        await client.send_message(
            msg["session_id"],
            f"详细架构：\n{details}",
        )
