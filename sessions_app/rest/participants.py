"""Who takes part: add, leave, remove."""

from __future__ import annotations

from typing import Any

import msgspec
from rest_framework.request import Request

from sessions_app.changes import Changes, unit_of_work
from sessions_app.models import Session
from sessions_app.protocol.bodies import ParticipantBody, ParticipantPatch
from sessions_app.protocol.errors import NotFound
from sessions_app.rest.answers import Answer, json_answer
from sessions_app.rest.base import SessionView
from sessions_app.rest.document import documented
from sessions_app.selectors import has_left, may_name_an_agent, online_names, participant_view
from sessions_app.services.participants import add_participant, remove_participant, update_participant

_participant_patch = msgspec.json.Decoder(ParticipantPatch)
_participant_body = msgspec.json.Decoder(ParticipantBody)


class Participants(SessionView):
    @documented(
        "add_participant",
        "Add an agent (201; already there: 200)",
        {201: "Participant", 200: "Participant"},
        body=ParticipantBody,
        creates=True,
    )
    def post(self, request: Request, session_id: str) -> Answer:
        body = self.body(request, _participant_body)

        def make(changes: Changes) -> Answer:
            place, added = add_participant(
                session_pk=self.access.session_pk,
                body=body,
                caller=self.caller(),
                is_operator=self.principal.is_operator,
                changes=changes,
            )
            last = Session.objects.values_list("last_sequence", flat=True).get(pk=self.access.session_pk)
            online = place.agent_id in online_names([place.agent_id])
            return json_answer(participant_view(place, last, online), 201 if added else 200)

        return self.create(request, body, make)


class OneParticipant(SessionView):
    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        try:
            super().initial(request, *args, **kwargs)
        except NotFound:
            # Leaving again is no error, although the session is no longer there for the one who left.
            itself = kwargs["agent_id"] == self.principal.agent_id
            if not (request.method == "DELETE" and itself and has_left(kwargs["session_id"], self.principal.agent_pk)):
                raise

    @documented(
        "patch_participant",
        "Say how context reaches a participant, and what of the talk it may get",
        {200: "ParticipantOptions"},
        body=ParticipantPatch,
    )
    def patch(self, request: Request, session_id: str, agent_id: str) -> Answer:
        patch = self.body(request, _participant_patch)
        if not may_name_an_agent(agent_id):
            raise NotFound()
        with unit_of_work() as changes:
            place = update_participant(
                session_pk=self.access.session_pk,
                agent_id=agent_id,
                patch=patch,
                caller=self.caller(),
                is_operator=self.principal.is_operator,
                changes=changes,
            )
        options = {"context_strategy": place.context_strategy, "visibility": place.visibility}
        return json_answer({"agent_id": agent_id, **options})

    @documented("remove_participant", "Leave a session, or remove somebody from one that you initiated", {204: None})
    def delete(self, request: Request, session_id: str, agent_id: str) -> Answer:
        if not may_name_an_agent(agent_id):
            raise NotFound()
        if hasattr(self, "access"):
            with unit_of_work() as changes:
                remove_participant(
                    session_pk=self.access.session_pk,
                    agent_id=agent_id,
                    caller=self.caller(),
                    is_operator=self.principal.is_operator,
                    changes=changes,
                )
        return Answer(204)
