"""An agent's card (specification, section 4.4.1): what it says of itself, and where and how it is spoken to here."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import version
from typing import Any

from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    AgentProvider,
    AgentSkill,
    APIKeySecurityScheme,
    HTTPAuthSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)
from django.conf import settings
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Struct

from sessions_app.context.parts import registry
from sessions_app.models import Agent
from sessions_app.protocol.jsontext import dumps
from sessions_app.selectors import online_names

PREFIX = "/a2a/agents/"
REPLAY = "urn:session-hub:a2a:replay:1"
"""Our extension: `SubscribeToTask` of any task, ended ones too, tells everything from the start, or from the
`Last-Event-ID` header, and then ends. Each update carries its sequence in `metadata`, under this URI."""
PARTS = "urn:session-hub:a2a:parts:1"
"""An extension that a hub reads in others' cards, too: `params.partTypes` says which versions of typed parts to send."""
API_KEY_HEADER = "X-API-Key"


def find_card_agent(agent_id: str) -> Agent | None:
    """An agent that has an A2A address: active, and not the hub or a person."""
    if not 0 < len(agent_id) <= 64 or not agent_id.isprintable():
        return None
    rows = Agent.objects.filter(agent_id=agent_id, is_active=True)
    return rows.exclude(kind__in=(Agent.SYSTEM, Agent.HUMAN)).first()


def card_of(agent: Agent, public_url: str, *, extended: bool = False) -> AgentCard:
    """The card, with addresses below `public_url`; the extended one says besides whether the agent is connected now."""
    base = f"{public_url}{PREFIX}{agent.agent_id}"
    versions = ("1.0", "0.3") if settings.HUB_A2A_LEGACY_CARD else ("1.0",)
    card = AgentCard(
        name=agent.name or agent.agent_id,
        description=agent.description or f"{agent.agent_id}, an agent of this hub.",
        version=hub_version(),
        provider=AgentProvider(organization="Session Hub", url=public_url),
        supported_interfaces=[
            AgentInterface(url=url, protocol_binding=binding, protocol_version=number)
            for number in versions
            for url, binding in ((f"{base}/", "JSONRPC"), (base, "HTTP+JSON"))
        ],
        capabilities=AgentCapabilities(
            streaming=True,
            push_notifications=True,
            extended_agent_card=True,
            extensions=[
                AgentExtension(
                    uri=REPLAY,
                    description="Subscribe to any task, ended ones too: replay from a sequence, then live, then the end.",
                ),
                AgentExtension(
                    uri=PARTS,
                    description="Typed parts that carry context, and the versions of each that are understood.",
                    params=ParseDict({"partTypes": registry.spoken()}, Struct()),
                ),
            ],
        ),
        default_input_modes=settings.HUB_A2A_INPUT_MODES,
        default_output_modes=settings.HUB_A2A_OUTPUT_MODES,
        skills=_skills(agent),
    )
    card.security_schemes["bearer"].CopyFrom(
        SecurityScheme(
            http_auth_security_scheme=HTTPAuthSecurityScheme(scheme="Bearer", description="A key of the hub.")
        )
    )
    card.security_schemes["apiKey"].CopyFrom(
        SecurityScheme(
            api_key_security_scheme=APIKeySecurityScheme(
                location="header", name=API_KEY_HEADER, description="The same key in a header of its own."
            )
        )
    )
    for scheme in ("bearer", "apiKey"):
        card.security_requirements.append(SecurityRequirement(schemes={scheme: StringList()}))
    if extended:
        online = bool(online_names([agent.pk]))
        extension = card.capabilities.extensions.add(uri=ONLINE, description="Whether the agent is connected now.")
        extension.params.update({"online": online, "answers": "by an executor" if agent.executor else "itself"})
    return card


ONLINE = "urn:session-hub:a2a:presence:1"


def _skills(agent: Agent) -> list[AgentSkill]:
    """What the agent told the directory; A2A wants at least one, each with a tag."""
    found = []
    for index, skill in enumerate(agent.skills or []):
        given: dict[str, Any] = skill if isinstance(skill, dict) else {"name": str(skill)}
        name = str(given.get("name") or given.get("id") or f"skill {index + 1}")
        tags, examples = given.get("tags"), given.get("examples")
        found.append(
            AgentSkill(
                id=str(given.get("id") or name),
                name=name,
                description=str(given.get("description") or name),
                tags=[str(tag) for tag in tags] if isinstance(tags, list) and tags else ["agent"],
                examples=[str(example) for example in examples] if isinstance(examples, list) else [],
            )
        )
    if not found:
        text = agent.description or f"Talk to {agent.agent_id}."
        found.append(AgentSkill(id="talk", name="Talk", description=text, tags=["chat"]))
    return found


@cache
def hub_version() -> str:
    return version("session-hub")


def card_json(agent: Agent, public_url: str) -> tuple[bytes, str]:
    """The public card as it is served, and its entity tag."""
    card = card_of(agent, public_url)
    shown = agent_card_to_dict(card) if settings.HUB_A2A_LEGACY_CARD else MessageToDict(card)
    body = dumps(shown).encode()
    return body, f'"{hashlib.sha256(body).hexdigest()[:32]}"'
