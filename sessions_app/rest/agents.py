"""The directory, one's own card, and what operators do: register, change, issue and revoke keys."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
from rest_framework.request import Request

from sessions_app.changes import Changes, unit_of_work
from sessions_app.db import utc_now, wire_time
from sessions_app.keys import issue_key, revoke_keys
from sessions_app.models import Agent, ApiKey
from sessions_app.protocol.bodies import AgentBody, AgentPatch, KeyBody
from sessions_app.protocol.errors import Forbidden, Invalid, NotFound
from sessions_app.rest.answers import Answer, json_answer
from sessions_app.rest.base import HubView
from sessions_app.rest.document import CURSOR, LIMIT, documented
from sessions_app.rest.reading import list_cursor, read_list_cursor
from sessions_app.selectors import agent_view, agent_views, agents_after, find_agent
from sessions_app.services.agents import register_agent, update_agent
from sessions_app.services.setups import completed, completed_patch

_agent_body = msgspec.json.Decoder(AgentBody)
_agent_patch = msgspec.json.Decoder(AgentPatch)
_key_body = msgspec.json.Decoder(KeyBody)
LABEL_CHARACTERS = 100
EXPIRES_SECONDS_MAX = 10 * 366 * 86_400


class Agents(HubView):
    @documented("list_agents", "The directory, by name", {200: "AgentList"}, parameters=(LIMIT, CURSOR))
    def get(self, request: Request) -> Answer:
        given = self.query.text("cursor")
        after = read_list_cursor(given)[0] if given is not None else ""
        limit = self.query.limit()
        found = agents_after(after, limit + 1, inactive_too=self.principal.is_operator)
        shown = found[:limit]
        cursor = list_cursor(shown[-1].agent_id) if len(found) > limit else None
        return json_answer({"agents": agent_views(shown, self.principal), "next_cursor": cursor})

    @documented("register_agent", "Register an agent (operators)", {201: "Agent"}, body=AgentBody, creates=True)
    def post(self, request: Request) -> Answer:
        self.require_operator()
        body = self.body(request, _agent_body)
        whole = completed(body)

        def make(changes: Changes) -> Answer:
            return json_answer(agent_view(register_agent(body=whole), self.principal), 201)

        return self.create(request, body, make)


class Me(HubView):
    @documented("show_me", "Your own card", {200: "Agent"})
    def get(self, request: Request) -> Answer:
        return json_answer(agent_view(self.caller(), self.principal))

    @documented("update_me", "Change your card, and whom you accept sessions from", {200: "Agent"}, body=AgentPatch)
    def patch(self, request: Request) -> Answer:
        patch = self.body(request, _agent_patch)
        with unit_of_work():
            agent = update_agent(agent=self.caller(), patch=patch, is_operator=self.principal.is_operator)
        return json_answer(agent_view(agent, self.principal))


class OneAgent(HubView):
    @documented("show_agent", "An agent's card", {200: "Agent"})
    def get(self, request: Request, agent_id: str) -> Answer:
        return json_answer(agent_view(find_agent(agent_id), self.principal))

    @documented("update_agent", "Change an agent (operators)", {200: "Agent"}, body=AgentPatch)
    def patch(self, request: Request, agent_id: str) -> Answer:
        self.require_operator()
        agent = _somebody(agent_id)
        patch = completed_patch(agent, self.body(request, _agent_patch))
        with unit_of_work():
            update_agent(agent=agent, patch=patch, is_operator=True)
        return json_answer(agent_view(agent, self.principal))


class Keys(HubView):
    @documented("issue_key", "Issue a key, shown this once (operators)", {201: "Key"}, body=KeyBody, creates=True)
    def post(self, request: Request, agent_id: str) -> Answer:
        self.require_operator()
        agent = _somebody(agent_id)
        body = self.body(request, _key_body)
        if len(body.label) > LABEL_CHARACTERS or not body.label.isprintable():
            raise Invalid(f"label is one line of {LABEL_CHARACTERS} characters at the most.", field="label")
        expires_in = _expiry(body)

        def make(changes: Changes) -> Answer:
            key, row = issue_key(agent, body.scope, body.label, expires_in)
            return json_answer(_key_view(row, key), 201)

        # The key itself is kept nowhere: who asks again learns that there is one, and which.
        return self.create(request, body, make, kept=_without_the_key)


class OneKey(HubView):
    @documented("revoke_key", "Revoke a key by its prefix (operators)", {204: None})
    def delete(self, request: Request, agent_id: str, prefix: str) -> Answer:
        self.require_operator()
        agent = find_agent(agent_id)
        row = ApiKey.objects.filter(agent=agent, prefix=prefix.removeprefix("ak_")).first() if _plain(prefix) else None
        if row is None:
            raise NotFound()
        if row.revoked_at is None:
            revoke_keys([row])
        return Answer(204)


def _plain(prefix: str) -> bool:
    return prefix.isascii() and prefix.isprintable() and len(prefix) <= 32


def _somebody(agent_id: str) -> Agent:
    """An agent that may be changed and hold keys: not the hub itself, which nobody may speak for."""
    agent = find_agent(agent_id)
    if agent.kind == Agent.SYSTEM:
        raise Forbidden("The hub is nobody's to speak for.")
    return agent


def _expiry(body: KeyBody) -> timedelta | None:
    """How long the key is to live. Named as in the answer, too: an ignored `expires_at` would be a key for ever."""
    seconds = body.expires_in_seconds
    if seconds is not None and not 1 <= seconds <= EXPIRES_SECONDS_MAX:
        raise Invalid(f"expires_in_seconds is 1 to {EXPIRES_SECONDS_MAX}, or null.", field="expires_in_seconds")
    if body.expires_at is None:
        return timedelta(seconds=seconds) if seconds is not None else None
    if seconds is not None:
        raise Invalid("Either expires_in_seconds or expires_at.", field="expires_at")
    try:
        left = datetime.fromisoformat(body.expires_at) - utc_now()
    except (ValueError, TypeError):  # no time, or one without its zone
        raise Invalid("expires_at is a time with its zone, as 2027-01-31T12:00:00Z.", field="expires_at") from None
    if not timedelta(seconds=1) <= left <= timedelta(seconds=EXPIRES_SECONDS_MAX):
        raise Invalid("expires_at is to come, and not later than the longest life of a key.", field="expires_at")
    return left


def _key_view(row: ApiKey, key: str | None) -> dict[str, str | None]:
    return {
        "agent_id": row.agent.agent_id,
        "api_key": key,
        "prefix": row.prefix,
        "scope": row.scope,
        "label": row.label,
        "expires_at": wire_time(row.expires_at),
    }


def _without_the_key(answer: Answer) -> Answer:
    return json_answer({**msgspec.json.decode(answer.body), "api_key": None}, answer.status)
