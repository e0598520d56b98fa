"""The command line of the checks. Keys come from the environment: a command line can be read by others."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys

import httpx

from hub.client.conformance import rest_checks, socket_checks
from hub.client.conformance.kit import Agent, Bench, Failed, Report, register, run

EPILOG = """Keys, from the environment:
  HUB_OPERATOR_KEY          an operator's key: the checks register their own agents with it
  HUB_CHECK_KEYS            or keys of two or three agents that exist, separated by commas (they are only used to talk to
                            one another, in sessions of their own)

Example:
  HUB_CHECK_KEYS=ak_…,ak_…,ak_… python -m hub.client.conformance http://127.0.0.1:8000

Exit codes: 0 all passed, 1 some failed, 2 wrong usage, 6 the server does not answer."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m hub.client.conformance",
        description="Check a server against the hub's wire contract.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("url", help="the server's address, like http://127.0.0.1:8000")
    parser.add_argument("--only", default="", metavar="TEXT", help="only checks whose name contains this")
    parser.add_argument("--json", action="store_true", dest="as_json", help="one JSON object per check")
    options = parser.parse_args(arguments)
    try:
        return asyncio.run(_main(options))
    except (Failed, ValueError) as error:
        print(f"cannot begin: {error}", file=sys.stderr)
        return 2
    except httpx.HTTPError as error:
        print(f"{options.url} does not answer: {str(error) or type(error).__name__}", file=sys.stderr)
        return 6


async def _main(options: argparse.Namespace) -> int:
    operator_key = os.environ.get("HUB_OPERATOR_KEY")
    operator = Agent("operator", operator_key) if operator_key else None
    bench = Bench(options.url, [], operator)
    for key in filter(None, (part.strip() for part in os.environ.get("HUB_CHECK_KEYS", "").split(","))):
        me = (await bench.call(Agent("?", key), "GET", "agents/me")).expect(200)
        bench.agents.append(Agent(str(me["agent_id"]), key))
    await register(bench)
    if len(bench.agents) < 2:
        raise Failed("two agents are needed: set HUB_OPERATOR_KEY or HUB_CHECK_KEYS")

    def tell(result: str, group: str, name: str, why: str, seconds: float) -> None:
        if options.as_json:
            row = {"result": result, "group": group, "check": name, "why": why, "seconds": round(seconds, 3)}
            print(json.dumps(row), flush=True)
        else:
            mark = {"passed": "ok  ", "failed": "FAIL", "skipped": "skip"}[result]
            print(f"{mark} {group}: {name}" + (f"\n       {ascii(why)[1:-1]}" if why else ""), flush=True)

    report: Report = await run(bench, only=options.only, tell=tell)
    if not options.as_json:
        counts = f"{len(report.passed)} passed, {len(report.failed)} failed, {len(report.skipped)} skipped"
        print(counts)
    return 1 if report.failed else 0


# The modules register their checks when they are imported.
REGISTERED = (rest_checks, socket_checks)

if __name__ == "__main__":
    sys.exit(main())
