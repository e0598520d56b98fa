"""From what a client wrote to a draft: everything that can be checked without the session's lock."""

from __future__ import annotations

import logging

from sessions_app.append import Draft
from sessions_app.models import KindRule
from sessions_app.protocol.bodies import (
    MessageBody,
    check_addressees,
    check_client_message_id,
    check_content,
    check_wait,
)
from sessions_app.protocol.classify import DEFAULT_RULES, Classifier, Rule, RuleError
from sessions_app.protocol.errors import Forbidden, Invalid
from sessions_app.protocol.ids import message_key

log = logging.getLogger("hub.messages")


class Kinds:
    """The classifier in force: rows of the admin first, then the built-in rules. Looked at again every few seconds."""

    def __init__(self) -> None:
        self._classifier = Classifier(DEFAULT_RULES)
        self._rows: list[tuple[str, str, str]] = []

    def refresh(self) -> None:
        """Read the rules from the database; called from a thread that may."""
        rows = list(KindRule.objects.filter(is_active=True).values_list("name", "kind", "pattern"))
        if rows != self._rows:
            own: list[Rule] = []
            for name, kind, pattern in rows:
                rule = Rule(name, kind, pattern)  # type: ignore[arg-type]
                try:
                    Classifier([*own, rule, *DEFAULT_RULES])
                except RuleError as error:  # written past the admin, or by an older hub: the others hold all the same
                    log.warning("the rule %r is left out: %s", name, error)
                else:
                    own.append(rule)
            self._classifier = Classifier([*own, *DEFAULT_RULES])
            self._rows = rows

    @property
    def classifier(self) -> Classifier:
        return self._classifier


kinds = Kinds()


def draft_message(body: MessageBody, session_pk: int, agent_pk: int, agent_id: str) -> Draft:
    """Check `body` as a message of `agent_id`; raises `Invalid`, `TooLarge`, `Forbidden`."""
    for name, author in (("from", body.from_), ("from_agent", body.from_agent)):
        if author is not None and author != agent_id:
            raise Forbidden("from is you; to send as another agent use its key.", field=name)
    content = check_content(body)
    reply_to = None
    if body.reply_to is not None and (reply_to := message_key(body.reply_to)) is None:
        raise Invalid("There is no such message for you in this session.", field="reply_to")
    refs = []
    for text in body.context_refs or ():
        if (key := message_key(text)) is None:
            raise Invalid("There is no such message for you in this session.", field="context_refs")
        refs.append(key)
    check_wait(body.timeout)
    decided = kinds.classifier.decide(content.text, body.requires_execution)
    return Draft(
        session_pk=session_pk,
        sender_pk=agent_pk,
        content=content.text,
        kind=decided.kind,
        parts=content.parts,
        to=check_addressees(body.to),
        reply_to=reply_to,
        client_message_id=check_client_message_id(body.client_message_id),
        requires_execution=body.requires_execution,
        metadata=content.metadata,
        classified_by=decided.classified_by if decided.kind != "chat" or body.requires_execution is not None else None,
        wants_response=bool(body.wait_for_response),
        context_refs=refs,
    )
