"""An agent that is killed: each message is answered and has one effect in the state file, whatever happens."""

import asyncio
import os
from pathlib import Path

from hub.client import A2ASessionClient, Message


async def main() -> None:
    state = Path(os.environ["STATE"])
    url, key = os.environ["HUB_URL"], os.environ["HUB_API_KEY"]
    client = A2ASessionClient(url, "worker", key, state=state, reconnect_cap=1.0)
    seen = Path(os.environ["SEEN"])

    @client.on_message
    async def handle(message: Message) -> None:
        with seen.open("a") as file:
            file.write(f"{message.sequence}\n")
        # First what the hub makes idempotent, last what is committed together with the cursor.
        await client.reply(message, f"did {message.content}")
        async with client.once(message) as db:
            db.execute("CREATE TABLE IF NOT EXISTS effect (sequence INTEGER, content TEXT)")
            db.execute("INSERT INTO effect VALUES (?, ?)", (message.sequence, message.content))

    await client.run_forever()


asyncio.run(main())
