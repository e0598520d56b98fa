"""One question put to one agent, from choosing what it takes along to what became of it.

    prepare  ->  (send `delivery.parts`)  ->  delivered | failed | forgotten

What `prepare` stores is byte for byte what is to be sent. What it chose for a `per_agent` agent is reserved in the same
transaction; `delivered` makes it seen and writes the exchange into the agent's own history, `failed` gives it back.
A retry under the same `key` finds the delivery it began, with the same bytes. One whose process died is given up after
`HUB_CONTEXT_RESERVE_SECONDS`, so that what it had reserved is not lost.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import IntegrityError

from sessions_app.context import choosing, histories, ledger, strategies, summaries, viewing
from sessions_app.context.choosing import CALLER, MODEL, Choice, Reader
from sessions_app.context.histories import NewEntry
from sessions_app.context.profiles import View, open_view
from sessions_app.context.strategies import EMBEDDED, PER_AGENT, SHARED, Payload
from sessions_app.context.summaries import Past
from sessions_app.context.turns import question_entries
from sessions_app.db import utc_now, write_transaction
from sessions_app.models import Agent, AgentHistory, Delivery, HistoryEntry, Message, Session
from sessions_app.protocol.errors import Conflict, NotFound
from sessions_app.protocol.ids import message_key
from sessions_app.protocol.jsontext import dumps

MOVES = {
    # action    from                                   to
    "deliver": (
        {Delivery.PREPARED, Delivery.FAILED},
        Delivery.DELIVERED,
    ),  # failed: given up too early, it was taken after all
    "fail": ({Delivery.PREPARED}, Delivery.FAILED),
}
ERROR_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class Ask:
    """A question to `agent_pk`. `message_key` is the message that it stands in, which is never injected. `asker_pk` is the
    agent who asks: what he may not read himself is not passed on at his word.

    `refs` and `model_refs` are message keys named by the caller and by the main agent's model; `search` False: nothing but
    those. `made`: the query is the asker's own, and not the message's text. `through` pins what is looked at (default:
    everything committed by now). `key` makes a retry find its delivery. `parts` are further parts of the question itself,
    which stand right after its text. `metadata` is carried along (`userId`). `speaks` and `window` (tokens) come from the
    receiver's card.
    """

    session_pk: int
    agent_pk: int
    query: str
    made: bool = False
    parts: Sequence[Mapping[str, Any]] = ()
    message_key: int | None = None
    asker_pk: int | None = None
    round: int | None = None
    refs: Sequence[int] = ()
    model_refs: Sequence[int] = ()
    search: bool = True
    through: int | None = None
    key: str | None = None
    strategy: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    speaks: Mapping[str, Sequence[str]] | None = None
    window: int | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """What the agent answered, as it enters its own history. `entries` are tool calls and results between question and reply.

    `sent` is the whole body as it went over the wire, where that is known. `usage_tokens` is what the model counted for
    `usage_bytes` of text.
    """

    content: str | None = None
    message_key: int | None = None
    entries: Sequence[NewEntry] = ()
    sent: str | None = None
    usage_bytes: int = 0
    usage_tokens: int = 0


@dataclass(frozen=True, slots=True)
class _Place:
    """Everything that is read before choosing."""

    session: Session
    agent: Agent
    initiator: str
    view: View
    asker: View | None
    asker_id: str
    strategy: str
    through: int
    round: int
    window: int


def prepare(ask: Ask, *, rebuilt: bool = False) -> Delivery:
    """Decide what travels, reserve it and store it. Raises `NotFound` when the agent takes no part in the session.

    Call it outside a transaction: a summary may have to be written first, by a model.
    """
    known = _known(ask)
    if known is not None:
        return known
    place = _place(ask)
    if place.view:
        ask = _shown(ask, place.view)
    if place.strategy == PER_AGENT:
        _tidy(place.session.pk, place.agent.pk)
    past = Past((), ())
    if place.strategy == EMBEDDED or rebuilt:
        past = _past(ask, place)
    proposed = _proposed(ask, place, search=place.strategy == PER_AGENT and not rebuilt)
    try:
        with write_transaction():
            if place.strategy == PER_AGENT:
                return _prepare_per_agent(ask, place, proposed, past, rebuilt)
            reasons = [choice.reason() for choice in proposed] + _history_reasons(past)
            return _store(ask, place, _payload(ask, place, proposed, past), reasons)
    except IntegrityError:  # the same attempt twice at once
        known = _known(ask)
        if known is None:
            raise
        return known


def _known(ask: Ask) -> Delivery | None:
    """What this key has begun; one that failed makes room for a new one."""
    if ask.key is None:
        return None
    delivery = Delivery.objects.filter(key=ask.key).first()
    if delivery is None:
        return None
    if delivery.status != Delivery.FAILED:
        return delivery
    Delivery.objects.filter(pk=delivery.pk, status=Delivery.FAILED).update(key=None)
    return None


def _place(ask: Ask) -> _Place:
    session = Session.objects.select_related("initiator").get(pk=ask.session_pk)
    agent = Agent.objects.get(pk=ask.agent_pk)
    wanted = [ask.agent_pk] + ([ask.asker_pk] if ask.asker_pk is not None else [])
    views = viewing.find_views(session.pk, wanted)
    if ask.agent_pk not in views:
        raise NotFound()
    asker, asker_id = None, ""
    if ask.asker_pk is not None:
        asker_id = Agent.objects.values_list("agent_id", flat=True).get(pk=ask.asker_pk)
        asker = views.get(ask.asker_pk, open_view(asker_id))
    round_ = ask.round
    if round_ is None and ask.message_key is not None:
        round_ = Message.objects.filter(pk=ask.message_key).values_list("round", flat=True).first()
    return _Place(
        session=session,
        agent=agent,
        initiator=session.initiator.agent_id,
        view=views[ask.agent_pk],
        asker=asker,
        asker_id=asker_id,
        strategy=ask.strategy or strategies.strategy_of(session, agent),
        through=session.last_sequence if ask.through is None else min(ask.through, session.last_sequence),
        round=session.round if round_ is None else round_,
        window=ask.window or settings.HUB_CONTEXT_WINDOW,
    )


def _shown(ask: Ask, view: View) -> Ask:
    """The question as the agent may get it. One that somebody made for it was judged when it was made."""
    query = view.redact(ask.query) if ask.made else viewing.question_for(view, ask.query, ask.message_key)
    parts = view.show_parts(ask.parts)
    if not query and not parts and ask.query:
        raise NotFound("Nothing of this question may be passed on to the agent.")
    return replace(ask, query=str(query), parts=parts)


def _past(ask: Ask, place: _Place) -> Past:
    """The session's past as the agent may get it, without the question itself."""
    past = summaries.keep_up(
        place.session.pk, place.view, through=place.through, current=place.round, window=place.window
    )
    question = ask.message_key
    remarks = tuple(r for r in past.remarks if question is None or r.key != question)
    return Past(past.summaries, remarks)


def _proposed(ask: Ask, place: _Place, *, search: bool) -> list[Choice]:
    if place.strategy == SHARED:
        return []
    reader = Reader(place.session.pk, place.agent, place.view, place.initiator, ask.message_key)
    named = [(key, CALLER) for key in ask.refs] + [(key, MODEL) for key in ask.model_refs]
    return choosing.choose(
        reader, ask.query, through=place.through, named=named, asker=place.asker, search=search and ask.search
    )


def _prepare_per_agent(ask: Ask, place: _Place, proposed: list[Choice], past: Past, rebuilt: bool) -> Delivery:
    """The rest of `prepare`, in the transaction that selects: under the history's lock rounds choose one after another."""
    session_pk, agent = place.session.pk, place.agent
    history = histories.lock(session_pk, agent.pk)
    taken = ledger.known(session_pk, agent.pk, [choice.key for choice in proposed])
    chosen = [choice for choice in proposed if choice.key not in taken]
    keys = [choice.key for choice in chosen]
    reasons = [choice.reason() for choice in chosen]
    reasons += [{**choice.reason(), "left_out": taken[choice.key]} for choice in proposed if choice.key in taken]
    if rebuilt:
        payload = _whole_payload(ask, place, chosen, past)
        reasons += _history_reasons(past)
        keys += [remark.key for remark in past.remarks if remark.key is not None]
    else:
        payload = _payload(ask, place, chosen, past)
    delivery = _store(ask, place, payload, reasons, rebuilt=rebuilt, correction=histories.correction(history))
    if not strategies.is_remote(agent) and not HistoryEntry.objects.filter(history=history).exists():
        keys += histories.rebuild(history, place.view, agent.agent_id, place.session.initiator_id, place.through)
    ledger.reserve(delivery, [key for key in keys if key != ask.message_key])
    return delivery


def _payload(ask: Ask, place: _Place, chosen: Sequence[Choice], past: Past) -> Payload:
    if place.strategy == EMBEDDED:
        return strategies.embedded(
            [{"text": ask.query}, *ask.parts],
            past,
            context=place.view.context(place.session.shared),
            initiator=place.initiator,
            refs=chosen,
            window=place.window,
            metadata=ask.metadata,
            speaks=ask.speaks,
        )
    session_id = place.session.public_id
    question = [{"text": ask.query}, *ask.parts]
    if place.strategy == SHARED:
        return strategies.shared(
            question, session_id=session_id, through=place.through, metadata=ask.metadata, speaks=ask.speaks
        )
    return strategies.per_agent(
        question, chosen, session_id=session_id, round=place.round, metadata=ask.metadata, speaks=ask.speaks
    )


def _whole_payload(ask: Ask, place: _Place, chosen: Sequence[Choice], past: Past) -> Payload:
    """For an agent that has forgotten: everything once, then only what is new again."""
    whole = strategies.embedded(
        [{"text": ask.query}, *ask.parts],
        past,
        context={},
        initiator=place.initiator,
        refs=chosen,
        window=place.window,
        metadata=ask.metadata,
        speaks=ask.speaks,
    )
    return Payload(whole.parts, {**whole.metadata, "session_id": place.session.public_id, "round": place.round})


def _history_reasons(past: Past) -> list[dict[str, Any]]:
    """What of the past goes along as a whole, in a few lines however long it is."""
    reasons: list[dict[str, Any]] = [
        {
            "how": "summary",
            "method": row.method,
            "covers_from": row.covers_from,
            "covers_to": row.covers_to,
            "rounds_from": row.rounds_from,
            "rounds_to": row.rounds_to,
        }
        for row in past.summaries
    ]
    if past.remarks:
        first, last = past.remarks[0].place, past.remarks[-1].place
        reasons.append({"how": "history", "from": first, "to": last, "messages": len(past.remarks)})
    return reasons


def _store(
    ask: Ask,
    place: _Place,
    payload: Payload,
    reasons: list[dict[str, Any]],
    *,
    rebuilt: bool = False,
    correction: float = 1.0,
) -> Delivery:
    return Delivery.objects.create(
        public_id=f"dlv-{secrets.token_hex(16)}",
        session=place.session,
        agent=place.agent,
        key=ask.key,
        strategy=place.strategy,
        asked_by=place.asker_id,
        query=ask.query,
        message_key=ask.message_key,
        round=place.round,
        through_sequence=place.through,
        parts=dumps(payload.parts),
        metadata=dumps(payload.metadata),
        reasons=reasons,
        estimated_tokens=strategies.tokens_of(payload, correction),
        visibility_hash=place.view.hash,
        rebuilt=rebuilt,
        created_at=utc_now(),
    )


# What became of it


def delivered(delivery: Delivery, reply: Reply | None = None) -> bool:
    """The agent took it: what was reserved is seen, and injections, question and reply enter its own history, all in one
    transaction (the caller's, when there is one). False when that was said before."""
    reply = reply or Reply()
    with write_transaction():
        history = histories.lock(delivery.session_id, delivery.agent_id)
        was = Delivery.objects.values_list("status", flat=True).get(pk=delivery.pk)
        if not _move(delivery, "deliver", sent=reply.sent if reply.sent is not None else delivery.sent):
            return False
        if delivery.strategy == PER_AGENT:
            question = [delivery.message_key] if delivery.message_key is not None else []
            given = _given(delivery) if was == Delivery.FAILED else []
            ledger.see(delivery, [*given, *question])
            _remember(delivery, history, reply)
        histories.learn_usage(history, reply.usage_bytes, reply.usage_tokens)
    return True


def _given(delivery: Delivery) -> list[int]:
    """The keys of what was injected, from the delivery itself."""
    ids = [reason["message_id"] for reason in delivery.reasons if "message_id" in reason and "left_out" not in reason]
    return [key for text in ids if (key := message_key(text)) is not None]


def _remember(delivery: Delivery, history: AgentHistory, reply: Reply) -> None:
    agent = Agent.objects.get(pk=delivery.agent_id)
    if strategies.is_remote(agent) or reply.content is None:
        return
    answered = HistoryEntry.objects.filter(history=history, kind=HistoryEntry.REPLY, message_key=reply.message_key)
    if reply.message_key is not None and answered.exists():  # a rebuild found the message first
        return
    entries = [*question_entries(delivery), *reply.entries]
    entries.append(NewEntry(HistoryEntry.REPLY, histories.ASSISTANT, reply.content, agent.agent_id, reply.message_key))
    histories.write(history, entries, round=delivery.round, delivery=delivery)


def failed(delivery: Delivery, error: str = "") -> bool:
    """The agent did not take it: nothing of it was given, nothing is left behind. False when it was settled before."""
    with write_transaction():
        histories.lock(delivery.session_id, delivery.agent_id)
        if not _move(delivery, "fail", error=error[:ERROR_CHARACTERS]):
            return False
        ledger.release(delivery)
    return True


def forgotten(delivery: Delivery, ask: Ask) -> Delivery:
    """The agent does not know the conversation any more: its ledger is reset, and the question goes again with everything.

    Once: raises `Conflict` when that was the answer to a rebuilt one.
    """
    with write_transaction():
        histories.lock(delivery.session_id, delivery.agent_id)
        if _move(delivery, "fail", error="unknown context"):
            ledger.release(delivery)
        if not delivery.rebuilt:
            ledger.reset(delivery.session_id, delivery.agent_id)
    if delivery.rebuilt:
        raise Conflict("The agent has forgotten the conversation again.")
    return prepare(ask, rebuilt=True)


def record_sent(delivery: Delivery, body: str) -> None:
    """Keep the whole body as it goes over the wire; call it before the bytes leave."""
    Delivery.objects.filter(pk=delivery.pk).update(sent=body)
    delivery.sent = body


def _move(delivery: Delivery, action: str, **columns: Any) -> bool:
    sources, target = MOVES[action]
    moved = Delivery.objects.filter(pk=delivery.pk, status__in=sources).update(
        status=target, settled_at=utc_now(), **columns
    )
    if moved:
        delivery.refresh_from_db()
    return bool(moved)


def _tidy(session_pk: int, agent_pk: int) -> None:
    """Before choosing: give back what a dead process had reserved, and forget a history that was unused for too long."""
    since = utc_now() - timedelta(seconds=settings.HUB_CONTEXT_RESERVE_SECONDS)
    stale = Delivery.objects.filter(
        session_id=session_pk, agent_id=agent_pk, status=Delivery.PREPARED, created_at__lt=since
    )
    known = AgentHistory.objects.filter(session_id=session_pk, agent_id=agent_pk).first()
    if not stale.exists() and (known is None or not histories.has_expired(known)):
        return
    with write_transaction():
        history = histories.lock(session_pk, agent_pk)
        for delivery in stale:
            if _move(delivery, "fail", error="nobody said what became of it"):
                ledger.release(delivery)
        if histories.has_expired(history):
            histories.forget(history)
            ledger.reset(session_pk, agent_pk)
