"""What agents were told, in the admin: whole, escaped, read-only."""

from __future__ import annotations

import html

from django.test import Client

from sessions_app.context import deliveries, histories
from sessions_app.context.deliveries import Ask, Reply
from sessions_app.models import Agent, AgentHistory, Delivery, Injection, Participant
from tests.integration.admin.rows import make_messages, make_sessions

ROOT = "/admin/sessions_app"


def test_a_delivery_shows_what_was_sent_and_why(admin: Client, agents: list[Agent]) -> None:
    session = make_sessions(1, agents)[0]
    asked = Participant.objects.exclude(agent=session.initiator).get(session=session).agent
    other = next(agent for agent in agents if agent.pk not in (asked.pk, session.initiator_id))
    keys = make_messages(session, [other], 3, "<script>alert({})</script>")
    delivery = deliveries.prepare(Ask(session.pk, asked.pk, "and <b>now</b>?", refs=[keys[1]], key="k"))
    deliveries.record_sent(delivery, '{"jsonrpc":"2.0"}')
    assert deliveries.delivered(delivery, Reply("<i>fine</i>"))
    row = Delivery.objects.get()
    page = admin.get(f"{ROOT}/delivery/{row.pk}/change/").content.decode()
    assert html.escape(row.parts) in page, "byte for byte"
    assert "{&quot;jsonrpc&quot;:&quot;2.0&quot;}" in page
    assert "caller" in page
    assert "<script>alert" not in page
    ledger = admin.get(f"{ROOT}/injection/?session={session.public_id}").content.decode()
    assert Injection.objects.get().get_state_display() in ledger
    history = admin.get(f"{ROOT}/agenthistory/{AgentHistory.objects.get().pk}/change/").content.decode()
    assert "&lt;i&gt;fine&lt;/i&gt;" in history
    assert histories.history_name(session.public_id[:13] + "…", asked.agent_id) in history
    for name in ("delivery", "agenthistory"):
        assert admin.post(f"{ROOT}/{name}/1/change/", {}).status_code in (403, 302)
        assert admin.get(f"{ROOT}/{name}/add/").status_code == 403
