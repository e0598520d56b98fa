"""Identities from the command line: `manage.py agent create | key | revoke | list`."""

from __future__ import annotations

import argparse
import json
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from sessions_app.changes import unit_of_work
from sessions_app.db import wire_time
from sessions_app.keys import issue_key, revoke_keys
from sessions_app.models import Agent, ApiKey
from sessions_app.protocol.bodies import AgentBody
from sessions_app.protocol.errors import HubError
from sessions_app.services.agents import register_agent
from sessions_app.services.setups import completed

SCOPES = [ApiKey.AGENT, ApiKey.OPERATOR]


class Command(BaseCommand):
    help = "Register agents, issue and revoke their keys. A key is printed once, when it is issued."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="create | key | revoke | list")

        create = actions.add_parser("create", help="register agents, with a key for each")
        create.add_argument("ids", nargs="+", metavar="ID")
        create.add_argument("--kind", default=Agent.AGENT)
        create.add_argument("--executor", default=None, metavar="NAME", help="what runs its traces, planner for one")
        create.add_argument(
            "--card", default=None, metavar="URL", help="a remote A2A agent, by its card; implies executor a2a"
        )
        create.add_argument(
            "--credential", default=None, metavar="NAME", help="what the card asks for, in HUB_A2A_SECRET_NAME"
        )
        self._of_a_key(create)

        key = actions.add_parser("key", help="issue another key for an agent")
        key.add_argument("id", metavar="ID")
        self._of_a_key(key)

        revoke = actions.add_parser("revoke", help="revoke a key; its sockets and streams end within seconds")
        revoke.add_argument("prefix", metavar="PREFIX", help="what `list` shows, or the whole key")

        listing = actions.add_parser("list", help="agents and their keys")
        listing.add_argument("--json", action="store_true", help="one JSON object a line")

    @staticmethod
    def _of_a_key(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--scope", choices=SCOPES, default=ApiKey.AGENT)
        parser.add_argument("--expires-in-days", type=float, default=None, metavar="N", help="never by default")
        parser.add_argument("--json", action="store_true", help='{"agent_id", "api_key"}, one line an agent')

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            getattr(self, f"_{options['action']}")(options)
        except HubError as refusal:
            raise CommandError(refusal.message) from None

    def _create(self, options: dict[str, Any]) -> None:
        issued = []
        bodies = [completed(self._body(name, options)) for name in options["ids"]]
        with unit_of_work():  # all of them or none
            for body in bodies:
                name = body.agent_id
                try:
                    agent = register_agent(body=body)
                except HubError as refusal:
                    raise CommandError(f"{name}: {refusal.message}") from None
                issued.append((agent, self._issue(agent, options)))
        for agent, key in issued:
            self._show(agent, key, options)

    @staticmethod
    def _body(name: str, options: dict[str, Any]) -> AgentBody:
        body = AgentBody(agent_id=name, kind=options["kind"], executor=options["executor"])
        if options["card"] is not None:
            if options["executor"] not in (None, "a2a"):
                raise CommandError("--card is for the executor a2a.")
            body.executor, body.executor_config = "a2a", {"card_url": options["card"]}
            if options["credential"] is not None:
                body.executor_config["credential"] = options["credential"]
        elif options["credential"] is not None:
            raise CommandError("--credential belongs to --card.")
        return body

    def _key(self, options: dict[str, Any]) -> None:
        agent = Agent.objects.filter(agent_id=options["id"]).exclude(kind=Agent.SYSTEM).first()
        if agent is None:
            raise CommandError(f"There is no agent {options['id']}.")
        self._show(agent, self._issue(agent, options), options)

    @staticmethod
    def _issue(agent: Agent, options: dict[str, Any]) -> str:
        days = options["expires_in_days"]
        if days is not None and not 0 < days <= 3660:
            raise CommandError("--expires-in-days is above 0 and at most 3660.")
        expires_in = timedelta(days=days) if days is not None else None
        return issue_key(agent, options["scope"], "manage.py", expires_in)[0]

    def _show(self, agent: Agent, key: str, options: dict[str, Any]) -> None:
        if options["json"]:
            self.stdout.write(json.dumps({"agent_id": agent.agent_id, "api_key": key}))
        else:
            self.stdout.write(f"{agent.agent_id}\t{key}")

    def _revoke(self, options: dict[str, Any]) -> None:
        prefix = options["prefix"].removeprefix("ak_").rstrip("…")[:12]
        row = ApiKey.objects.select_related("agent").filter(prefix=prefix).first()
        if row is None:
            raise CommandError(f"There is no key with the prefix {prefix}.")
        if row.revoked_at is None:
            revoke_keys([row])
        self.stdout.write(f"ak_{row.prefix}… of {row.agent.agent_id} opens nothing any more.")

    def _list(self, options: dict[str, Any]) -> None:
        for agent in Agent.objects.exclude(kind=Agent.SYSTEM).prefetch_related("keys").order_by("agent_id"):
            keys = [_line(key) for key in agent.keys.order_by("pk")]
            if options["json"]:
                shown = {"agent_id": agent.agent_id, "kind": agent.kind, "is_active": agent.is_active, "keys": keys}
                self.stdout.write(json.dumps(shown))
                continue
            self.stdout.write(f"{agent.agent_id}\t{agent.kind}{'' if agent.is_active else ' (switched off)'}")
            for key in keys:
                state = "revoked" if key["revoked_at"] else f"until {key['expires_at'] or 'revoked'}"
                self.stdout.write(f"  ak_{key['prefix']}…\t{key['scope']}\t{state}")


def _line(key: ApiKey) -> dict[str, str | None]:
    return {
        "prefix": key.prefix,
        "scope": key.scope,
        "label": key.label,
        "created_at": wire_time(key.created_at),
        "expires_at": wire_time(key.expires_at),
        "revoked_at": wire_time(key.revoked_at),
        "last_used_at": wire_time(key.last_used_at),
    }
