"""The cloud assistant of the third seed document, as written, in a function because of its top-level `await`.

One condition differs: the seed waits for "哪个模块", which its own terminal agent never says ("你想重点分析哪个？").
"""

import asyncio
import os

from hub.client import A2ASessionClient


async def main() -> None:
    client = A2ASessionClient(os.environ["HUB_URL"], "cloud-agent-123", os.environ["HUB_API_KEY"])

    # 1. 创建对话
    session_id = await client.create_session(
        other_agent="terminal-agent-456",
        initial_message="请分析本地项目",
    )

    # 2. 注册消息处理器（自动响应）
    @client.on_message
    async def handle_message(msg):  # type: ignore[no-untyped-def]
        content = msg["content"]
        print(f"收到消息: {content}", flush=True)

        if "重点分析哪个" in content:
            # 简单回复，不需要执行
            await client.send_message(session_id, "重点分析core模块")

        elif "详细说明" in content:
            # 需要进一步分析，触发执行
            await client.send_message(
                session_id,
                "是的，请详细说明架构设计和关键组件",
                requires_execution=os.environ.get("EXECUTE") == "1",  # 标记需要执行
            )

    # 3. 等待对话完成
    session = await client.wait_for_completion(session_id)
    print(f"ended: {session.status}", flush=True)


asyncio.run(main())
