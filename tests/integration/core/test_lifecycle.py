"""Time-outs, branches, keys and waits, against a real database."""

from __future__ import annotations

from datetime import timedelta

import pytest

from sessions_app.append import Draft, Stored, append
from sessions_app.changes import Changes, add_publisher, remove_publisher, unit_of_work
from sessions_app.db import utc_now
from sessions_app.keys import bad_keys, bearer, issue_key, revoke_keys, verify_key
from sessions_app.models import Agent, ApiKey, HubProcess, Presence, Session
from sessions_app.protocol.bodies import BranchBody, MergeBody, MessageBody
from sessions_app.protocol.errors import Invalid, NotFound, SessionClosed, Unauthenticated
from sessions_app.realtime import presence
from sessions_app.responses import find_response
from sessions_app.services.branches import create_branch, merge_branch
from sessions_app.services.sessions import close_session, expire_sessions

Agents = dict[str, Agent]


def make_silent(session: Session, seconds: int) -> None:
    then = utc_now() - timedelta(seconds=seconds)
    Session.objects.filter(pk=session.pk).update(last_activity=then, timeout_check_at=then)


def say(session: Session, sender: Agent, content: str = "hello", **fields: object) -> Stored:
    with unit_of_work() as changes:
        outcome = append([Draft(session.pk, sender.pk, content, **fields)], changes)[0]  # type: ignore[arg-type]
    assert isinstance(outcome, Stored), outcome
    return outcome


def test_a_silent_session_times_out_and_says_why(session: Session, agents: Agents) -> None:
    make_silent(session, 301)
    heard: list[Changes] = []
    add_publisher(heard.append)
    try:
        assert expire_sessions() == 1
    finally:
        remove_publisher(heard.append)
    session.refresh_from_db()
    assert (session.status, session.close_reason) == ("timeout", "timeout")
    states = [change.state for changes in heard for change in changes.sessions.values()]
    assert [state.status for state in states if state] == ["timeout"], "its sockets are told"
    assert expire_sessions() == 0


def test_a_message_in_time_keeps_a_session_alive_and_the_reminder_is_put_off(session: Session, agents: Agents) -> None:
    make_silent(session, 301)
    Session.objects.filter(pk=session.pk).update(last_activity=utc_now() - timedelta(seconds=10))
    assert expire_sessions() == 0
    session.refresh_from_db()
    assert session.status == "created"
    assert session.timeout_check_at is not None
    assert session.timeout_check_at > utc_now() + timedelta(seconds=200)


def test_a_session_never_times_out_under_an_open_trace(session: Session, agents: Agents) -> None:
    make_silent(session, 301)
    Session.objects.filter(pk=session.pk).update(open_traces={"trace-x": "bob"}, status="waiting")
    assert expire_sessions() == 0
    Session.objects.filter(pk=session.pk).update(open_traces={}, status="active")
    make_silent(session, 301)
    assert expire_sessions() == 1


def test_a_branch_numbers_from_one_and_merges_once(session: Session, agents: Agents) -> None:
    say(session, agents["alice"], "main line")
    with unit_of_work() as changes:
        body = BranchBody(participants=["bob"], initial_message=MessageBody(content="between us"))
        branch = create_branch(parent_pk=session.pk, body=body, caller=agents["alice"], changes=changes).session
    assert (branch.parent_id, branch.branched_at, branch.last_sequence) == (session.pk, 1, 1)
    say(branch, agents["bob"], "agreed")
    with unit_of_work() as changes:
        first = merge_branch(branch_pk=branch.pk, body=MergeBody(), caller=agents["alice"], changes=changes)
    with unit_of_work() as changes:
        again = merge_branch(branch_pk=branch.pk, body=MergeBody(), caller=agents["alice"], changes=changes)
    assert (first.message.kind, first.message.key) == ("result", again.message.key)
    assert "agreed" in first.message.body
    branch.refresh_from_db()
    assert (branch.status, branch.close_reason) == ("completed", "merged")
    with pytest.raises(NotFound), unit_of_work() as changes:
        merge_branch(branch_pk=branch.pk, body=MergeBody(), caller=agents["carol"], changes=changes)
    with pytest.raises(Invalid), unit_of_work() as changes:
        merge_branch(branch_pk=session.pk, body=MergeBody(), caller=agents["alice"], changes=changes)


def test_nothing_branches_off_an_ended_session(session: Session, agents: Agents) -> None:
    with unit_of_work() as changes:
        close_session(session_pk=session.pk, reason="done", changes=changes)
    with pytest.raises(SessionClosed), unit_of_work() as changes:
        create_branch(parent_pk=session.pk, body=BranchBody(), caller=agents["alice"], changes=changes)


def test_a_response_is_the_lowest_that_fits_and_never_changes(session: Session, agents: Agents) -> None:
    first = say(session, agents["alice"], "hi")
    question = say(session, agents["alice"], "which?", to=["bob"])
    say(session, agents["carol"], "not me")
    say(session, agents["bob"], "about something else", reply_to=first.message.key)
    assert find_response(session.pk, question.message.key)[0] is None
    answer = say(session, agents["bob"], "that one", reply_to=question.message.key)
    say(session, agents["bob"], "and another thing")
    for after in (0, 3):
        found, ended, _ = find_response(session.pk, question.message.key, after)
        assert found is not None
        assert (found.key, ended) == (answer.message.key, False)


def test_a_wait_ends_with_its_session(session: Session, agents: Agents) -> None:
    question = say(session, agents["alice"], "anybody?")
    with unit_of_work() as changes:
        close_session(session_pk=session.pk, reason=None, changes=changes)
    assert find_response(session.pk, question.message.key)[:2] == (None, True)
    with pytest.raises(NotFound):
        find_response(session.pk, 12345)


def test_bad_keys_of_every_kind_are_refused_alike(agents: Agents) -> None:
    good, _ = issue_key(agents["alice"])
    expired, _ = issue_key(agents["alice"], expires_in=timedelta(seconds=-1))
    revoked, row = issue_key(agents["alice"])
    off, _ = issue_key(agents["bob"])
    Agent.objects.filter(agent_id="bob").update(is_active=False)
    revoke_keys([row])
    assert verify_key(good).agent_id == "alice"
    refusals = set()
    for key in (None, "", "x", good[:-1], good + "x", expired, revoked, off, "ak_" + "a" * 12 + "_" + "b" * 43):
        with pytest.raises(Unauthenticated) as refusal:
            verify_key(key)
        refusals.add(str(refusal.value.body()))
    assert len(refusals) == 1
    assert not ApiKey.objects.filter(digest=good).exists(), "only the hash is kept"


def test_a_key_that_was_good_a_moment_ago_is_bad_at_once_after_its_revocation(agents: Agents) -> None:
    key, row = issue_key(agents["alice"])
    assert verify_key(key).key_pk == row.pk
    revoke_keys([row])
    with pytest.raises(Unauthenticated):
        verify_key(key)
    assert bad_keys({row.pk}) == {row.pk}


@pytest.mark.parametrize(
    ("header", "key"),
    [
        (None, None),
        ("Bearer ak_x", "ak_x"),
        ("bearer  ak_x ", "ak_x"),
        ("Basic ak_x", None),
        ("ak_x", None),
        ("", None),
    ],
)
def test_a_key_is_taken_from_a_bearer_header_only(header: str | None, key: str | None) -> None:
    assert bearer(header) == key


def test_the_agents_of_a_dead_process_go_offline_with_its_lease(agents: Agents) -> None:
    alice = agents["alice"].pk
    one, two = presence.register_process(), presence.register_process()
    presence.set_presence(one, {alice: False}, set())
    presence.set_presence(two, {alice: False}, set())
    assert presence.online_among([alice]) == {alice}
    presence.set_presence(two, {}, {alice})
    assert presence.online_among([alice]) == {alice}, "another process still has a socket of it"
    HubProcess.objects.filter(pk=one).update(lease_until=utc_now() - timedelta(seconds=1))
    assert presence.online_among([alice]) == set(), "the lease counts, not the row"
    presence.sweep_processes()
    assert not Presence.objects.exists()
    assert not presence.renew_lease(one), "it has to register anew"
    assert Agent.objects.get(pk=alice).last_seen is not None
