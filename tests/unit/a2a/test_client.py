"""The credential that a card asks for: where it goes, and to whom."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from a2a.types import AgentCard
from google.protobuf.json_format import ParseDict

from hub.a2a.outbound.client import CardAuth, NoCredential, Place, credential_place
from hub.a2a.outbound.config import MissingSecret, RemoteConfig, read_config
from sessions_app.protocol.errors import Invalid

BEARER = {"httpAuthSecurityScheme": {"scheme": "bearer"}}
HEADER = {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}}
COOKIE = {"apiKeySecurityScheme": {"location": "cookie", "name": "k"}}
OAUTH: dict[str, Any] = {"oauth2SecurityScheme": {"flows": {}}}
MTLS: dict[str, Any] = {"mtlsSecurityScheme": {}}


def card(schemes: dict[str, Any], *requirements: tuple[str, ...]) -> AgentCard:
    wanted: list[Any] = [{"schemes": {name: {"list": []} for name in names}} for names in requirements]
    made: AgentCard = ParseDict({"securitySchemes": schemes, "securityRequirements": wanted}, AgentCard())
    return made


@pytest.mark.parametrize(
    ("asked", "place"),
    [
        (card({}), None),
        (card({"b": BEARER}), None),  # it has a scheme and requires none
        (card({"b": BEARER}, (), ("b",)), None),  # nothing is one of the ways
        (card({"b": BEARER}, ("b",)), Place("header", "Authorization", "Bearer ")),
        (card({"o": OAUTH}, ("o",)), Place("header", "Authorization", "Bearer ")),
        (card({"h": HEADER}, ("h",)), Place("header", "X-Key")),
        (card({"c": COOKIE}, ("c",)), Place("cookie", "k")),
        (card({"m": MTLS, "b": BEARER}, ("m",), ("b",)), Place("header", "Authorization", "Bearer ")),
    ],
)
def test_the_first_way_that_we_can_go_is_taken(asked: AgentCard, place: Place | None) -> None:
    assert credential_place(asked) == place


@pytest.mark.parametrize(
    "asked",
    [card({"m": MTLS}, ("m",)), card({"b": BEARER, "h": HEADER}, ("b", "h")), card({}, ("unknown",))],
)
def test_what_we_can_not_give_is_said(asked: AgentCard) -> None:
    with pytest.raises(NoCredential):
        credential_place(asked)


def sent(place: Place, url: str, **config: Any) -> httpx.Request:
    seen: list[httpx.Request] = []
    auth = CardAuth(place, "s3cret", RemoteConfig("https://agents.example.org/card", "NAME", **config))

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200)

    with httpx.Client(transport=httpx.MockTransport(answer), auth=auth) as client:
        client.post(url)
    return seen[0]


def test_it_goes_to_the_cards_host_and_to_those_that_are_named_and_to_nobody_else() -> None:
    place = Place("header", "Authorization", "Bearer ")
    assert sent(place, "https://agents.example.org/rpc").headers["authorization"] == "Bearer s3cret"
    request = sent(place, "https://api.example.org/rpc", credential_hosts=("api.example.org",))
    assert request.headers["authorization"] == "Bearer s3cret"
    for host in ("evil.example.org", "agents.example.org.evil.example", "api.example.org"):
        with pytest.raises(NoCredential):
            sent(place, f"https://{host}/rpc")


def test_a_key_in_the_query_is_not_in_the_url_that_is_logged() -> None:
    request = sent(Place("query", "key"), "https://agents.example.org/rpc?x=1")
    assert "s3cret" not in str(request.url)
    assert request.extensions["hub.extra_query"] == {"key": "s3cret"}


def test_a_cookie_is_added_to_those_that_are_there() -> None:
    assert sent(Place("cookie", "k"), "https://agents.example.org/").headers["cookie"] == "k=s3cret"


def test_a_credential_is_a_name_below_our_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUB_A2A_SECRET_WEATHER", " value\n")
    assert read_config({"card_url": "https://x.example/", "credential": "WEATHER"}).secret() == "value"
    with pytest.raises(MissingSecret):
        read_config({"card_url": "https://x.example/", "credential": "OTHER"}).secret()
    for name in ("path", "../X", "A-B", "", "1A", "Ä"):
        with pytest.raises(Invalid):
            read_config({"card_url": "https://x.example/", "credential": name})
