"""The cloud agent of the demo, a process of its own: an ordinary program over the client SDK.

Reads HUB_URL, HUB_API_KEY, DEMO_LANG and DEMO_OTHER from the environment; prints the session's id on its first line.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys

from hub.client import A2ASessionClient
from hub.client.frames import Message
from hub.demo.lines import SCRIPTS

SECONDS = 120.0
_NAMES = re.compile(r"[:：]\s*([A-Za-z_][\w./-]*(?:,\s*[A-Za-z_][\w./-]*)*)")


def choose(question: str) -> str:
    """The module to ask about: `core`, as in the seed, when there is one, else the first that is named."""
    found = _NAMES.search(question.splitlines()[-1])
    names = [name.strip() for name in found[1].split(",")] if found else []
    return "core" if "core" in names else names[0] if names else ""


async def main() -> int:
    script = SCRIPTS[os.environ.get("DEMO_LANG", "zh")]
    async with A2ASessionClient(os.environ["HUB_URL"], "cloud-agent-123", os.environ["HUB_API_KEY"]) as client:
        session_id = await client.create_session(
            other_agent=os.environ.get("DEMO_OTHER", "terminal-agent-456"), initial_message=script.opening
        )
        print(session_id, flush=True)
        module = ""
        state = "opened"

        @client.on_message
        async def answer(message: Message) -> None:
            nonlocal module, state
            said = message.content
            if state == "opened" and any(words in said for words in script.asks_which):
                module = choose(said)
                state = "chosen"
                await client.send_message(session_id, script.choice.format(module=module), requires_execution=False)
            elif state == "chosen" and any(words in said for words in script.offers_details):
                state = "accepted"
                await client.send_message(session_id, script.accepts.format(module=module), requires_execution=True)
            elif state == "accepted" and message.kind in ("chat", "result"):
                state = "done"
                await client.send_message(session_id, script.goodbye)
                await client.close_session(session_id)

        session = await client.wait_for_completion(session_id, timeout=SECONDS)
        print(f"{session.status} after {state}", file=sys.stderr)
        return 0 if session.status == "completed" and state == "done" else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
