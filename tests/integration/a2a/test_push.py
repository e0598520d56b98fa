"""Push notifications: an outbox that is made of the task's own events, sent at least once, in order, dead after N."""

from __future__ import annotations

import hashlib
import hmac
import http.server
import json
import threading
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from a2a.types import TaskPushNotificationConfig, TaskState

from hub.a2a import addresses, pushes
from hub.a2a.push import outbox, sending
from hub.a2a.push.models import PushConfig, PushNotification
from hub.a2a.push.sending import signature
from hub.a2a.tasks import find_task
from sessions_app.db import utc_now
from sessions_app.models import Agent, Participant
from tests import push_source
from tests.integration.traces.conftest import Talk
from tests.push_source import Source, status
from traces_app import leases, lifecycle
from traces_app.executors.contract import Completed

pytestmark = pytest.mark.django_db

WORKING, DONE = TaskState.TASK_STATE_WORKING, TaskState.TASK_STATE_COMPLETED


class Receiver:
    """An HTTP server that answers with the next of `answers` (then 200), and keeps what came."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.got: list[tuple[dict[str, str], bytes]] = []
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.got.append(({key.lower(): value for key, value in self.headers.items()}, body))
                code = receiver.answers.pop(0) if receiver.answers else 200
                self.send_response(code)
                if code == 302:
                    self.send_header("location", receiver.url)
                if code == 429:
                    self.send_header("retry-after", "120")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/hook"

    @property
    def states(self) -> list[str]:
        return [json.loads(body)["statusUpdate"]["status"]["state"] for _, body in self.got]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture(autouse=True)
def source(settings: Any) -> Iterator[None]:
    settings.HUB_A2A_PUSH_SOURCE = "tests.push_source"
    settings.HUB_A2A_PUSH_TASK = "tests.push_source.task_proto"
    settings.HUB_A2A_ALLOW = ["127.0.0.1"]
    push_source.TASKS.clear()
    yield
    push_source.TASKS.clear()


def config(url: str, *, states: tuple[TaskState, ...] = (WORKING,), over: bool = False, **more: Any) -> PushConfig:
    owner, _ = Agent.objects.get_or_create(agent_id="alice")
    agent, _ = Agent.objects.get_or_create(agent_id="bob")
    happened(agent.pk, *states, over=over)
    return PushConfig.objects.create(
        owner=owner, agent=agent, task_id="trace-1", config_id="c", url=url, created_at=utc_now(), **more
    )


def happened(agent_pk: int, *states: TaskState, over: bool = False) -> None:
    task = push_source.TASKS.setdefault(("trace-1", agent_pk), Source())
    for state in states:
        task.updates.append((2 * len(task.updates) + 1, status("trace-1", state)))
    task.over = over


def work(seconds_later: float = 0.0) -> int:
    """One sweep and what it rings for; returns how many attempts were rung for."""
    due = outbox.take_due(utc_now() + timedelta(seconds=seconds_later))
    for name, (pk, attempts) in due:
        assert name == "a2a.push"
        outbox.deliver(pk, attempts)
    return len(due)


def test_each_update_of_a_task_is_told_once_and_in_order(receiver: Receiver) -> None:
    row = config(receiver.url, states=(TaskState.TASK_STATE_SUBMITTED, WORKING, TaskState.TASK_STATE_INPUT_REQUIRED))
    work()
    happened(row.agent_id, WORKING, DONE, over=True)
    work()
    work()
    assert receiver.states == [
        f"TASK_STATE_{name}" for name in ("SUBMITTED", "WORKING", "INPUT_REQUIRED", "WORKING", "COMPLETED")
    ]
    headers, body = receiver.got[0]
    assert headers["content-type"] == "application/a2a+json"
    assert json.loads(body)["statusUpdate"]["taskId"] == "trace-1"
    row.refresh_from_db()
    assert (row.ended, row.numbered, row.cursor) == (True, 5, 9)
    assert set(PushNotification.objects.values_list("status", "attempts")) == {("sent", 1)}


def test_a_receiver_that_fails_twice_gets_it_at_the_third_attempt_and_nothing_overtakes(receiver: Receiver) -> None:
    row = config(receiver.url)
    receiver.answers = [500, 503]
    work()
    happened(row.agent_id, DONE, over=True)
    assert work() == 0  # the first is backing off, and the second waits for it
    later = PushNotification.objects.get(number=1).due_at
    assert later > utc_now()
    assert work(3) == 1
    assert work(10) == 1
    assert receiver.states == ["TASK_STATE_WORKING"] * 3 + ["TASK_STATE_COMPLETED"]
    ids = [headers["x-a2a-notification-id"] for headers, _ in receiver.got]
    assert ids[0] == ids[1] == ids[2] != ids[3]
    assert list(PushNotification.objects.values_list("status", "attempts")) == [("sent", 3), ("sent", 1)]


def test_it_is_dead_after_so_many_attempts_and_the_next_has_its_turn(receiver: Receiver, settings: Any) -> None:
    settings.HUB_A2A_PUSH_ATTEMPTS = 3
    receiver.answers = [500, 404, 302]
    config(receiver.url, states=(WORKING, DONE), over=True)
    for later in (0, 3, 10, 11):
        work(later)
    assert list(PushNotification.objects.values_list("status", "attempts", "last_error")) == [
        ("dead", 3, "HTTP 302"),
        ("sent", 1, ""),
    ]
    assert len(receiver.got) == 4  # a redirection is a failure, and is not followed


def test_one_that_is_gone_is_not_asked_again(receiver: Receiver) -> None:
    receiver.answers = [410]
    config(receiver.url)
    work()
    assert PushNotification.objects.get().status == "dead"


def test_a_receiver_that_asks_for_time_gets_it(receiver: Receiver) -> None:
    receiver.answers = [429]
    config(receiver.url)
    work()
    assert PushNotification.objects.get().due_at > utc_now() + timedelta(seconds=100)


def test_the_back_off_grows_and_ends(receiver: Receiver, settings: Any) -> None:
    settings.HUB_A2A_PUSH_ATTEMPTS = 40
    config(receiver.url)
    work()
    waits = []
    for attempts in (1, 2, 5, 12, 30):
        PushNotification.objects.update(status="pending", attempts=attempts)
        assert outbox.settle(
            PushNotification.objects.select_related("config").get(), sending.Verdict(False, "HTTP 500")
        )
        waits.append((PushNotification.objects.get().due_at - utc_now()).total_seconds())
    assert all(
        low - 1 < wait <= high
        for wait, (low, high) in zip(waits, [(1, 2), (2, 4), (16, 32), (1800, 3600), (1800, 3600)], strict=True)
    )


def test_a_worker_that_dies_in_the_middle_leaves_it_to_another(receiver: Receiver) -> None:
    config(receiver.url)
    ((_, (pk, attempts)),) = outbox.take_due(utc_now())
    assert outbox.claim(pk, attempts) is not None  # and dies
    assert work() == 0
    assert work(outbox.CLAIM_SECONDS + 1) == 1
    assert (PushNotification.objects.get().status, PushNotification.objects.get().attempts) == ("sent", 2)


def test_a_bell_that_rings_twice_sends_once_and_one_that_is_lost_rings_again(receiver: Receiver) -> None:
    config(receiver.url)
    ((_, (pk, attempts)),) = outbox.take_due(utc_now())
    assert outbox.take_due(utc_now()) == []
    assert outbox.take_due(utc_now() + timedelta(seconds=outbox.RING_SECONDS + 1)) == [("a2a.push", [pk, attempts])]
    assert outbox.deliver(pk, attempts) == 1
    assert outbox.deliver(pk, attempts) == 0
    assert len(receiver.got) == 1


def test_two_sweeps_at_once_make_each_notification_once(receiver: Receiver) -> None:
    row = config(receiver.url, states=(WORKING, DONE), over=True)
    stale = PushConfig.objects.get()
    outbox.collect(utc_now())
    assert outbox._collect_one(stale, utc_now()) == 0  # it read the cursor before the other moved it
    assert PushNotification.objects.filter(config=row).count() == 2


def test_a_config_that_is_deleted_takes_what_is_pending_along(receiver: Receiver) -> None:
    config(receiver.url)
    ((_, (pk, attempts)),) = outbox.take_due(utc_now())
    PushConfig.objects.all().delete()
    assert outbox.deliver(pk, attempts) == 0
    assert receiver.got == []


def test_a_task_that_is_gone_ends_its_config(receiver: Receiver) -> None:
    config(receiver.url)
    push_source.TASKS.clear()
    outbox.collect(utc_now())
    assert PushConfig.objects.get().ended


def test_an_older_client_gets_the_task_as_it_stands(receiver: Receiver) -> None:
    config(receiver.url, states=(WORKING, DONE), over=True, protocol="0.3")
    work()
    ((headers, body),) = receiver.got
    task = json.loads(body)
    assert (task["kind"], task["id"], task["status"]["state"]) == ("task", "trace-1", "completed")
    assert headers["content-type"] == "application/json"


def test_token_and_credentials_are_sent_as_the_client_configured_them(receiver: Receiver) -> None:
    config(receiver.url, token="tok-日本", scheme="Bearer", credentials="c-r-e-d")
    work()
    headers, _ = receiver.got[0]
    assert headers["authorization"] == "Bearer c-r-e-d"
    assert headers["x-a2a-notification-token"].encode("latin-1").decode() == "tok-日本"


def test_a_signature_is_over_time_and_body_and_the_secret_stays_here(receiver: Receiver) -> None:
    config(receiver.url, scheme="HMAC-SHA256", credentials="shared-secret")
    work()
    headers, body = receiver.got[0]
    moment = headers["x-a2a-signature"].partition(",")[0].removeprefix("t=")
    assert headers["x-a2a-signature"] == signature("shared-secret", body, int(moment))
    digest = hmac.new(b"shared-secret", moment.encode() + b"." + body, hashlib.sha256).hexdigest()
    assert headers["x-a2a-signature"].endswith(digest)
    assert "shared-secret" not in str(headers)


def test_a_json_web_token_is_bound_to_the_body(receiver: Receiver) -> None:
    config(receiver.url, scheme="JWT", credentials="shared-secret")
    work()
    headers, body = receiver.got[0]
    head, claims, sign = headers["authorization"].removeprefix("Bearer ").split(".")
    digest = hmac.new(b"shared-secret", f"{head}.{claims}".encode(), hashlib.sha256).digest()
    assert _decoded(sign) == digest
    told = json.loads(_decoded(claims))
    assert told["request_body_sha256"] == hashlib.sha256(body).hexdigest()
    assert (told["task_id"], told["aud"]) == ("trace-1", receiver.url)
    assert told["exp"] - told["iat"] == 300


def _decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def test_an_address_is_judged_again_when_it_is_gone_to(
    receiver: Receiver, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that was public when the config was made leads to loopback now."""
    settings.HUB_A2A_ALLOW = []
    answers = [["93.184.216.34"], ["127.0.0.1"]]
    monkeypatch.setattr(addresses, "resolve_host", lambda host, port: answers.pop(0))
    url = addresses.check_url("https://hooks.example.org/x")
    config(url)
    work()
    assert PushNotification.objects.get().last_error == "The host hooks.example.org is not at a public address."
    assert receiver.got == []


def test_a_receiver_that_does_not_answer_costs_so_many_seconds_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    monkeypatch.setattr(sending, "TOTAL_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config(f"http://127.0.0.1:{silent.getsockname()[1]}/")
        work()
    assert PushNotification.objects.get().last_error == "no answer in time"


def test_a_receiver_that_is_not_there_is_tried_again() -> None:
    config("http://127.0.0.1:9/")
    work()
    notification = PushNotification.objects.get()
    assert (notification.status, notification.last_error) == ("pending", "ConnectError")


def test_what_was_settled_long_ago_is_forgotten(receiver: Receiver) -> None:
    config(receiver.url)
    work()
    outbox.purge(utc_now() + timedelta(days=6))
    assert PushNotification.objects.exists()
    outbox.purge(utc_now() + timedelta(days=8))
    assert not PushNotification.objects.exists()


def test_what_happens_to_a_trace_is_told_as_its_streams_tell_it(receiver: Receiver, settings: Any) -> None:
    """The hub's own tasks: configured by an A2A client, made of the trace's event log."""
    settings.HUB_A2A_PUSH_SOURCE = "hub.a2a.updates"
    settings.HUB_A2A_PUSH_TASK = "hub.a2a.tasks.task_proto"
    talk = Talk("bob")
    trace = talk.ask("count words")
    ref = find_task(trace.public_id, talk.agents["alice"].pk, talk.agents["bob"].pk)
    pushes.save(ref, TaskPushNotificationConfig(url=receiver.url, id="new"), "1.0")
    pushes.save(ref, TaskPushNotificationConfig(url=f"{receiver.url}/old", id="old"), "0.3")
    claimed = leases.claim(trace.pk, "worker")
    assert claimed is not None
    work()
    lifecycle.complete(claimed, Completed("two words"))
    work()
    work()
    told = [json.loads(body) for _, body in receiver.got]
    new = [event for event in told if "kind" not in event]
    assert [event.get("statusUpdate", {}).get("status", {}).get("state") for event in new] == [
        "TASK_STATE_WORKING",
        None,
        "TASK_STATE_COMPLETED",
    ]
    assert new[1]["artifactUpdate"]["artifact"]["parts"] == [{"text": "two words"}]
    old = [event for event in told if event.get("kind") == "task"]
    assert [task["status"]["state"] for task in old] == ["working", "completed"]
    assert not PushConfig.objects.filter(ended=False).exists()
    assert outbox.collect(utc_now()) == 0


def test_a_config_for_a_task_that_has_ended_waits_for_nothing(receiver: Receiver, settings: Any) -> None:
    settings.HUB_A2A_PUSH_SOURCE = "hub.a2a.updates"
    talk = Talk("bob")
    trace = talk.ask("count words")
    claimed = leases.claim(trace.pk, "worker")
    assert claimed is not None
    lifecycle.complete(claimed, Completed("two words"))
    ref = find_task(trace.public_id, talk.agents["alice"].pk, talk.agents["bob"].pk)
    pushes.save(ref, TaskPushNotificationConfig(url=receiver.url), "1.0")
    assert PushConfig.objects.get().ended
    assert outbox.collect(utc_now()) == 0


@pytest.mark.parametrize("how", ["leaves", "is switched off"])
def test_an_owner_who_is_in_the_context_no_more_is_told_nothing_more(
    receiver: Receiver, settings: Any, how: str
) -> None:
    settings.HUB_A2A_PUSH_SOURCE = "hub.a2a.updates"
    talk = Talk("bob")
    alice = talk.agents["alice"]
    Participant.objects.filter(session_id=talk.pk, agent=alice).update(visibility={"withheld_senders": ["bob"]})
    trace = talk.ask("count words")
    ref = find_task(trace.public_id, alice.pk, talk.agents["bob"].pk)
    pushes.save(ref, TaskPushNotificationConfig(url=receiver.url), "1.0")
    claimed = leases.claim(trace.pk, "worker")
    assert claimed is not None
    work()
    assert receiver.states == ["TASK_STATE_WORKING"]
    if how == "leaves":
        Participant.objects.filter(session_id=talk.pk, agent=alice).update(left_at=utc_now())
    else:
        Agent.objects.filter(pk=alice.pk).update(is_active=False)
    lifecycle.complete(claimed, Completed("two words"))
    work()
    assert receiver.states == ["TASK_STATE_WORKING"]
    assert PushConfig.objects.get().ended


def test_tasks_that_wait_long_do_not_keep_the_hub_from_looking_at_others(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "OPEN_LIMIT", 2)
    first = config(receiver.url)
    outbox.collect(utc_now())
    first.refresh_from_db()
    for name in ("d", "e"):  # as the first: they have been told all there is
        PushConfig.objects.create(
            owner_id=first.owner_id,
            agent_id=first.agent_id,
            task_id=first.task_id,
            config_id=name,
            cursor=first.cursor,
            created_at=utc_now(),
        )
    PushConfig.objects.create(
        owner_id=first.owner_id, agent_id=first.agent_id, task_id=first.task_id, config_id="new", created_at=utc_now()
    )
    assert outbox.collect(utc_now()) == 1
    assert PushNotification.objects.filter(config__config_id="new").exists()
