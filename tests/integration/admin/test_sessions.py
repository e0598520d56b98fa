"""The page of a session: what it shows, how it is closed, and that nothing said in it gets power over the page."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils.html import escape

from sessions_app.append import append
from sessions_app.changes import Changes, unit_of_work
from sessions_app.drafts import draft_message
from sessions_app.models import Agent, KindRule, Message, Participant, Session
from sessions_app.protocol.bodies import MessageBody
from sessions_app.protocol.errors import HubError, Unavailable
from sessions_app.services import sessions as services
from tests.integration.admin.conftest import staff_client
from tests.integration.admin.rows import make_agents, make_messages, make_sessions

ROOT = "/admin/sessions_app"
ATTACK = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'</textarea></pre>{{ 7|add:7 }}{% now 'Y' %}"


@pytest.fixture
def talk(agents: list[Agent]) -> Session:
    """A session between the first two agents, as the services leave it."""
    with unit_of_work() as made:
        return services.open_session(initiator=agents[0], participants=[agents[1]], title="Talk", changes=made).session


def say(session: Session, agent: Agent, content: str, **more: Any) -> int:
    with unit_of_work() as made:
        draft = draft_message(MessageBody(content=content, **more), session.pk, agent.pk, agent.agent_id)
        outcome = append([draft], made)[0]
    if isinstance(outcome, HubError):
        raise outcome
    return Message.objects.filter(session=session).latest("sequence").pk


def text_of(response: Any) -> str:
    return str(response.content.decode())


def sequences(page: str) -> list[int]:
    return [int(number) for number in re.findall(r'id="m(\d+)"', page)]


def test_the_page_shows_state_turn_participants_and_what_was_said(
    admin: Client, agents: list[Agent], talk: Session
) -> None:
    say(talk, agents[0], "Which module?", wait_for_response=True)
    say(talk, agents[0], "The core, perhaps?")
    Session.objects.filter(pk=talk.pk).update(context={"current_topic": "模块"})
    page = text_of(admin.get(f"{ROOT}/session/{talk.pk}/change/"))
    assert "Which module?" in page
    assert re.search(r"Waiting for</th><td>agent-1<", page)
    assert re.search(r"Spoke last</th><td>agent-0<", page)
    assert 'hub-waiting">waiting' in page
    assert "&quot;current_topic&quot;: &quot;模块&quot;" in page
    assert sequences(page) == [1, 2]
    unread = {name: int(number) for name, number in re.findall(
        r'>(agent-\d)</a></td>\s*<td>\w+</td>\s*<td class="hub-number">\d+</td>\s*<td class="hub-number">(\d+)</td>', page
    )}  # fmt: skip
    assert unread == {"agent-0": 0, "agent-1": 2}


def test_a_session_is_reached_by_the_id_that_people_know(admin: Client, talk: Session) -> None:
    assert admin.get(f"{ROOT}/session/{talk.public_id}/change/").status_code == 200
    assert admin.get(f"{ROOT}/session/sess-{'a' * 26}/change/").status_code == 302


def test_older_messages_are_reached_by_sequence_without_one_missing(admin: Client, agents: list[Agent]) -> None:
    session = make_sessions(1, agents)[0]
    make_messages(session, agents, 120)
    url = f"{ROOT}/session/{session.pk}/change/"
    page = text_of(admin.get(url))
    seen = [sequences(page)]
    while found := re.search(r'href="\?before=(\d+)#', page):
        page = text_of(admin.get(f"{url}?before={found[1]}"))
        seen.insert(0, sequences(page))
    assert [number for part in seen for number in part] == list(range(1, 121))

    page = text_of(admin.get(f"{url}?after=0"))
    forward = sequences(page)
    while found := re.search(r'href="\?after=([1-9]\d*)#', page):
        page = text_of(admin.get(f"{url}?after={found[1]}"))
        forward += sequences(page)
    assert forward == list(range(1, 121))


@pytest.mark.parametrize(
    "query",
    [
        "before=x", "before=-1", "before=0", "after=" + "9" * 40, "after=%00", "before=9223372036854775808", "before=1&after=1",
        "before=" + "9" * 9000, "after=٣", "context=whole", "nothing=x", "before=", "after=50",
    ],
    ids=lambda query: query[:20],
)  # fmt: skip
def test_no_query_string_makes_the_page_fail(admin: Client, agents: list[Agent], talk: Session, query: str) -> None:
    say(talk, agents[0], "hello")
    assert admin.get(f"{ROOT}/session/{talk.pk}/change/?{query}").status_code == 200


@pytest.mark.parametrize("key", ["x", "0", "-1", "100000000000000000000000000", "%00", "_00", "sess-", "1/2"])
def test_a_strange_id_is_no_session_and_no_message(admin: Client, agents: list[Agent], key: str) -> None:
    for model, pages in (("session", ["change", "close", "history"]), ("message", ["change", "history"])):
        for page in pages:
            assert admin.get(f"{ROOT}/{model}/{key}/{page}/").status_code in {302, 404}


def test_what_was_said_is_shown_and_never_obeyed(admin: Client, agents: list[Agent], talk: Session) -> None:
    key = say(
        talk, agents[0], ATTACK, metadata={"note": ATTACK}, parts=None, client_message_id="<b>id</b>"
    )  # fmt: skip
    Session.objects.filter(pk=talk.pk).update(
        title=ATTACK, context={ATTACK: ATTACK}, close_reason=ATTACK, closed_at=talk.created_at
    )
    Agent.objects.filter(pk=agents[0].pk).update(name=ATTACK, description=ATTACK, skills=[ATTACK], executor=ATTACK)
    Participant.objects.filter(session=talk, agent=agents[0]).update(role=ATTACK[:32])
    pages = [
        "session/", f"session/{talk.pk}/change/", f"session/{talk.pk}/close/", f"session/{talk.pk}/history/", "message/",
        f"message/{key}/change/", "agent/", f"agent/{agents[0].pk}/change/", f"message/?q={escape('<script>alert(1)')}",
        "session/?session=<script>alert(1)</script>", "message/?session=<script>alert(1)</script>",
        "apikey/?agent=<script>alert(1)</script>", "session/<script>alert(1)<_2Fscript>/change/",
    ]  # fmt: skip
    for path in pages:
        page = text_of(admin.get(f"{ROOT}/{path}", follow=True))
        assert "<script>alert" not in page, path
        assert "<img src=x" not in page, path
        assert "<b>id" not in page, path
    page = text_of(admin.get(f"{ROOT}/session/{talk.pk}/change/"))
    assert escape(ATTACK) in page


def test_controls_and_marks_of_direction_are_made_visible(admin: Client, agents: list[Agent]) -> None:
    strange = "a\x1b[2Jb\x00c\x9bd\u202ee\u2066f\r\ng\rh\x7f😀\u0301\uffff"
    session = make_sessions(1, agents)[0]
    if connection.vendor == "postgresql":
        strange = strange.replace("\0", "")
    [key] = make_messages(session, agents, 1, strange)
    Session.objects.filter(pk=session.pk).update(title="\u202etitle\x07")
    for path in (f"session/{session.pk}/change/", f"message/{key}/change/", "message/", "session/"):
        response = admin.get(f"{ROOT}/{path}")
        assert response.status_code == 200
        page = text_of(response)
        assert not set(page) & set("\x00\x1b\x9b\x7f\u202e\u2066\x07"), path
    page = text_of(admin.get(f"{ROOT}/message/{key}/change/"))
    assert "␛[2J" in page
    assert "⟨U+202E⟩" in page
    assert "f\ng␍h" in page


def test_long_content_is_cut_and_shown_whole_on_its_own_page(admin: Client, agents: list[Agent]) -> None:
    session = make_sessions(1, agents)[0]
    keys = make_messages(session, agents, 3, "é" * 200_000 + "the end of {}")
    page = text_of(admin.get(f"{ROOT}/session/{session.pk}/change/"))
    assert len(page) < 60_000
    assert "the end of" not in page
    assert page.count("Show whole") == 3
    assert "the end of 2" in text_of(admin.get(f"{ROOT}/message/{keys[1]}/change/"))
    assert len(text_of(admin.get(f"{ROOT}/message/"))) < 60_000


def test_parts_and_metadata_are_laid_out_and_cut(admin: Client, agents: list[Agent], talk: Session) -> None:
    say(talk, agents[0], "small")
    message = Message.objects.get()
    small, large = [{"type": "data", "data": {"b": 1, "a": "é"}}], [{"type": "text", "text": "x" * 300_000}]
    for parts, is_cut in ((small, False), (large, True)):
        Message.objects.filter(pk=message.pk).update(parts=parts, metadata={"n": 12345678901234567890})
        page = text_of(admin.get(f"{ROOT}/session/{talk.pk}/change/"))
        assert len(page) < 60_000
        assert ("Show whole" in page) == is_cut
        whole = text_of(admin.get(f"{ROOT}/message/{message.pk}/change/"))
        assert "&quot;n&quot;: 12345678901234567890" in whole
        if is_cut:
            assert "x" * 300_000 in whole
        else:
            assert "{\n      &quot;b&quot;: 1,\n      &quot;a&quot;: &quot;é&quot;" in page


def test_a_large_context_is_cut_until_one_asks(admin: Client, talk: Session) -> None:
    Session.objects.filter(pk=talk.pk).update(context={"notes": ["y" * 100] * 1000, "last": "the end"})
    url = f"{ROOT}/session/{talk.pk}/change/"
    assert "the end" not in text_of(admin.get(url))
    assert "the end" in text_of(admin.get(f"{url}?context=whole"))


def test_hundreds_of_addressees_and_participants_stay_a_page(admin: Client, db: None) -> None:
    agents = make_agents(900)
    session = make_sessions(1, agents)[0]
    Participant.objects.bulk_create(
        Participant(session=session, agent=agent, joined_at=session.created_at) for agent in agents[2:]
    )
    make_messages(session, agents, 5)
    Message.objects.update(to=[agent.agent_id for agent in agents])
    page = text_of(admin.get(f"{ROOT}/session/{session.pk}/change/"))
    assert "There are more than these." in page
    assert "agent-0, agent-1 +898" not in page
    assert len(page) < 200_000
    row = text_of(admin.get(f"{ROOT}/session/"))
    assert "agent-0, agent-1, agent-2 +897" in row


def test_a_branch_and_its_parent_lead_to_each_other(admin: Client, agents: list[Agent], talk: Session) -> None:
    with unit_of_work() as made:
        child = services.open_session(
            initiator=agents[0], participants=[agents[1]], parent=talk, branched_at=0, changes=made
        ).session
    assert f'/session/{child.pk}/change/">{child.public_id}' in text_of(admin.get(f"{ROOT}/session/{talk.pk}/change/"))
    assert f'/session/{talk.pk}/change/">{talk.public_id}' in text_of(admin.get(f"{ROOT}/session/{child.pk}/change/"))


def test_an_answer_leads_to_its_question(admin: Client, agents: list[Agent], talk: Session) -> None:
    question = say(talk, agents[0], "Which?")
    answer = say(talk, agents[1], "This.", reply_to=Message.objects.get(pk=question).public_id)
    assert f"{ROOT}/message/{question}/change/" in text_of(admin.get(f"{ROOT}/message/{answer}/change/"))
    assert "↩ an answer" in text_of(admin.get(f"{ROOT}/session/{talk.pk}/change/"))


# --- closing ----------------------------------------------------------------------------------------------------------


def test_closing_goes_through_the_service_and_tells_the_sockets(
    admin: Client, agents: list[Agent], talk: Session, published: list[Changes], django_capture_on_commit_callbacks: Any
) -> None:
    say(talk, agents[0], "Which module?", wait_for_response=True)
    published.clear()
    assert "Close a session" in text_of(admin.get(f"{ROOT}/session/{talk.pk}/close/"))
    assert Session.objects.get().status == Session.WAITING
    with django_capture_on_commit_callbacks(execute=True):
        response = admin.post(f"{ROOT}/session/{talk.pk}/close/", {"reason": "enough"})
    assert response["Location"] == f"{ROOT}/session/{talk.pk}/change/"
    session = Session.objects.get()
    assert (session.status, session.close_reason, session.open_questions) == (Session.COMPLETED, "enough", [])
    assert session.closed_at is not None
    [state] = [change.sessions[talk.pk].state for change in published if talk.pk in change.sessions]
    assert state is not None
    assert (state.status, state.reason, state.waiting_for) == (Session.COMPLETED, "enough", [])
    assert "Closed: enough" in text_of(admin.get(f"{ROOT}/session/{talk.pk}/history/"))


def test_closing_twice_changes_nothing(admin: Client, talk: Session) -> None:
    admin.post(f"{ROOT}/session/{talk.pk}/close/", {"reason": ""})
    again = admin.post(f"{ROOT}/session/{talk.pk}/close/", {"reason": "again"}, follow=True)
    assert "had ended already" in text_of(again)
    session = Session.objects.get()
    assert session.close_reason == "completed"
    assert "/close/" not in text_of(again)


@pytest.mark.parametrize("reason", ["x" * 201, "a\0b"])
def test_a_reason_that_the_service_would_refuse_is_a_form_error(admin: Client, talk: Session, reason: str) -> None:
    response = admin.post(f"{ROOT}/session/{talk.pk}/close/", {"reason": reason})
    assert response.status_code == 200
    assert response.context["form"].errors
    assert Session.objects.get().status == Session.CREATED


def test_selected_sessions_are_closed_after_a_question(admin: Client, agents: list[Agent]) -> None:
    sessions = make_sessions(3, agents)
    form = {"action": "close_selected", "index": "0", "_selected_action": [str(session.pk) for session in sessions[:2]]}
    asked = text_of(admin.post(f"{ROOT}/session/", form))
    assert "Close sessions" in asked
    assert not Session.objects.filter(status=Session.COMPLETED).exists()
    wrong = admin.post(f"{ROOT}/session/", {**form, "confirmed": "yes", "reason": "x" * 201})
    assert wrong.context["form"].errors
    admin.post(f"{ROOT}/session/", {**form, "confirmed": "yes", "reason": "tidy"})
    closed = Session.objects.filter(status=Session.COMPLETED, close_reason="tidy")
    assert set(closed) == set(sessions[:2])


@pytest.mark.django_db(transaction=True)
def test_one_that_cannot_be_closed_keeps_none_of_the_others(
    admin: Client, agents: list[Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, bad, other = make_sessions(3, agents)

    def cancel_work(session_pk: int, made: Changes) -> None:
        Session.objects.filter(pk=session_pk).update(round=99)
        if session_pk == bad.pk:
            raise Unavailable()

    monkeypatch.setattr(services, "close_hooks", lambda: [cancel_work])
    form = {"action": "close_selected", "index": "0", "_selected_action": [str(s.pk) for s in (one, bad, other)]}
    page = text_of(admin.post(f"{ROOT}/session/", {**form, "confirmed": "yes", "reason": ""}, follow=True))
    assert bad.public_id in page
    assert "Closed 2 sessions." in page
    assert set(Session.objects.filter(status=Session.COMPLETED)) == {one, other}
    assert Session.objects.get(pk=bad.pk).round != 99


# --- who may what -----------------------------------------------------------------------------------------------------


def test_who_may_only_view_closes_nothing(viewer: Client, agents: list[Agent], talk: Session) -> None:
    page = text_of(viewer.get(f"{ROOT}/session/{talk.pk}/change/"))
    assert "/close/" not in page
    assert viewer.get(f"{ROOT}/session/{talk.pk}/close/").status_code == 403
    assert viewer.post(f"{ROOT}/session/{talk.pk}/close/", {"reason": "x"}).status_code == 403
    form = {"action": "close_selected", "index": "0", "confirmed": "yes", "_selected_action": [str(talk.pk)]}
    viewer.post(f"{ROOT}/session/", form)
    assert Session.objects.get().status == Session.CREATED


def test_who_may_not_read_messages_sees_the_session_without_them(agents: list[Agent], talk: Session) -> None:
    key = say(talk, agents[0], "between us")
    client = staff_client("view_session")
    page = text_of(client.get(f"{ROOT}/session/{talk.pk}/change/"))
    assert "You may not read messages." in page
    assert "between us" not in page
    assert client.get(f"{ROOT}/message/{key}/change/").status_code == 403
    assert client.get(f"{ROOT}/message/").status_code == 403


def test_nobody_writes_or_deletes_a_message_here(admin: Client, agents: list[Agent], talk: Session) -> None:
    key = say(talk, agents[0], "said")
    assert admin.get(f"{ROOT}/message/add/").status_code == 403
    assert admin.post(f"{ROOT}/message/{key}/delete/", {"post": "yes"}).status_code == 403
    admin.post(f"{ROOT}/message/{key}/change/", {"content": "unsaid"})
    admin.post(
        f"{ROOT}/message/", {"action": "delete_selected", "index": "0", "_selected_action": [str(key)], "post": "yes"}
    )
    assert Message.objects.get().content == "said"
    assert admin.post(f"{ROOT}/session/{talk.pk}/delete/", {"post": "yes"}).status_code == 403
    assert admin.get(f"{ROOT}/session/add/").status_code == 403


def test_a_stranger_is_sent_to_the_login(client: Client, talk: Session) -> None:
    for path in (
        f"session/{talk.pk}/change/",
        f"session/{talk.pk}/close/",
        "apikey/add/",
        "apikey/1/revoke/",
        "message/",
    ):
        assert client.get(f"{ROOT}/{path}")["Location"].startswith("/admin/login/")
        assert client.post(f"{ROOT}/{path}")["Location"].startswith("/admin/login/")


def test_a_form_from_another_site_is_refused(superuser: Any, talk: Session) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(superuser)
    assert client.post(f"{ROOT}/session/{talk.pk}/close/", {"reason": "x"}).status_code == 403
    assert client.post(f"{ROOT}/apikey/add/", {}).status_code == 403
    assert Session.objects.get().status == Session.CREATED


# --- rules ------------------------------------------------------------------------------------------------------------


RULE = {"name": "deploy", "kind": "task", "pattern": "deploy .{1,40}", "position": "10", "is_active": "on"}


def test_a_rule_is_stored_when_the_classifier_would_take_it(admin: Client, db: None) -> None:
    response = admin.post(f"{ROOT}/kindrule/add/", {**RULE, "sample": "Please deploy the hub"})
    assert response.status_code == 302, response.context["adminform"].form.errors
    rule = KindRule.objects.get()
    assert (rule.name, rule.kind, rule.pattern, rule.position) == ("deploy", "task", "deploy .{1,40}", 10)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("pattern", "("), ("pattern", ""), ("pattern", "(a+)+$"), ("pattern", "x" * 501), ("pattern", "a)|(?:b"),
        ("pattern", r"(a)\1"), ("pattern", ".*.*.*.*x"), ("pattern", "a\0"), ("name", "deploy it"),
        ("name", "tool-slash"), ("name", ""), ("name", "部署"), ("kind", "result"), ("kind", "x"), ("position", "x"),
        ("position", "9" * 30), ("sample", "Hello"),
    ],
    ids=lambda value: str(value)[:30],
)  # fmt: skip
def test_a_rule_that_the_classifier_would_refuse_is_a_form_error(
    admin: Client, db: None, field: str, value: str
) -> None:
    response = admin.post(f"{ROOT}/kindrule/add/", {**RULE, field: value})
    assert response.status_code == 200
    assert list(response.context["adminform"].form.errors) == [field]
    assert not KindRule.objects.exists()


def test_a_rule_is_changed_and_deleted_by_those_who_may(admin: Client, viewer: Client, db: None) -> None:
    admin.post(f"{ROOT}/kindrule/add/", RULE)
    rule = KindRule.objects.get()
    assert viewer.post(f"{ROOT}/kindrule/{rule.pk}/change/", {**RULE, "kind": "chat"}).status_code == 403
    assert viewer.post(f"{ROOT}/kindrule/{rule.pk}/delete/", {"post": "yes"}).status_code == 403
    admin.post(f"{ROOT}/kindrule/{rule.pk}/change/", {**RULE, "kind": "chat"})
    assert KindRule.objects.get().kind == "chat"
    admin.post(f"{ROOT}/kindrule/{rule.pk}/delete/", {"post": "yes"})
    assert not KindRule.objects.exists()
