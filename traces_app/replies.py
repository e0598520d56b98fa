"""What the agents answered that a main agent called: kept with their traces, posted by the end of the trace that called.

So a round's messages stand in the log together, whole or not at all, and a retry of the main agent finds what it had.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from sessions_app.append import Draft
from sessions_app.context.provenance import Provenance, joined, of_message, plain, read
from sessions_app.models import Message
from sessions_app.protocol.jsontext import dumps, loads
from traces_app.models import Trace
from traces_app.results import Result


def keep(trace: Trace, draft: Draft, metadata: dict[str, Any], result: Result) -> None:
    """A called trace has something to say. Its message has a key from now on, so that what refers to it can name it."""
    trace.reply = {"key": draft.key, "content": draft.content, "parts": result.parts_value, "metadata": metadata}
    Trace.objects.filter(pk=trace.pk).update(reply=trace.reply)
    if trace.parent is not None:
        add_provenance(trace.parent, of_message(trace.agent.agent_id, metadata, result.parts_value or ()))


def add_provenance(trace: Trace, more: Provenance) -> None:
    """From now on this trace may hold such words. Call it under the session's lock, before they can reach it."""
    known = read(Trace.objects.values_list("provenance", flat=True).get(pk=trace.pk))
    trace.provenance = plain(joined([known, more]))
    Trace.objects.filter(pk=trace.pk).update(provenance=trace.provenance)


def remembered(trace: Trace) -> Provenance:
    """Whose words the agent of this trace was told in its session before."""
    rows = Trace.objects.filter(session_id=trace.session_id, agent_id=trace.agent_id, pk__lt=trace.pk)
    return joined(read(value) for value in rows.exclude(provenance={}).values_list("provenance", flat=True))


def answered(trace: Trace) -> list[Trace]:
    """The traces that this one called and that have something to say, in the order in which they ended."""
    rows = Trace.objects.filter(parent_id=trace.pk, called=True, reply__isnull=False)
    return list(rows.order_by("ended_at", "id"))


def messages(trace: Trace, own: Draft, *, relay: bool) -> Iterator[Draft]:
    """What the end of a trace posts: each answer from the agent that gave it, then its own message, last.

    With `relay`, a single answer is the trace's message: from that agent, under this trace's name. Each says of which round
    it is: by the time it is posted the next one may have begun.
    """
    called = answered(trace)
    if not called:
        yield own
        return
    waiting = [child for child in called if not _is_posted(child)]
    alone = relay and len(called) == len(waiting) == 1
    round_ = _round(trace)
    for child in waiting:
        draft = _draft(trace, child, round_)
        if alone:
            draft.trace_id, draft.client_message_id = own.trace_id, own.client_message_id
        yield draft
    if not alone:
        yield dataclasses.replace(own, metadata=_with(own.metadata, round=round_))


def messages_by_now(trace: Trace) -> Iterator[Draft]:
    """The answers so far, when it is clear that there will be more: whoever is called next may be given them."""
    round_ = _round(trace)
    for child in answered(trace):
        if not _is_posted(child):
            child.reply = {**(child.reply or {}), "posted": True}
            Trace.objects.filter(pk=child.pk).update(reply=child.reply)
            yield _draft(trace, child, round_)


def _is_posted(child: Trace) -> bool:
    return bool((child.reply or {}).get("posted"))


def _round(trace: Trace) -> int | None:
    return Message.objects.filter(pk=trace.message_key).values_list("round", flat=True).first()


def _draft(trace: Trace, child: Trace, round_: int | None) -> Draft:
    reply: dict[str, Any] = child.reply or {}
    return Draft(
        session_pk=trace.session_id,
        sender_pk=child.agent_id,
        content=reply["content"],
        kind="result",
        parts=dumps(reply["parts"]) if reply["parts"] else None,
        reply_to=trace.message_key,
        client_message_id=f"trace:{child.public_id}",
        metadata=dumps({**reply["metadata"], "round": round_, "called_as": child.public_id}),
        trace_id=child.public_id,
        key=reply["key"],
    )


def _with(metadata: str | None, **more: Any) -> str:
    return dumps({**(loads(metadata) if metadata else {}), **more})
