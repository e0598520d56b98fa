"""What all views that are not hot share: key, quota, strict bodies, one envelope, and creation exactly once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import msgspec
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.views import APIView

from sessions_app.changes import Changes, unit_of_work
from sessions_app.keys import Principal
from sessions_app.models import Agent
from sessions_app.protocol import limits
from sessions_app.protocol.errors import Forbidden, MethodNotAllowed
from sessions_app.rest import quotas
from sessions_app.rest.answers import Answer
from sessions_app.rest.idempotency import answer_once
from sessions_app.rest.reading import Query, declared_too_large, idempotency_key, read_body
from sessions_app.selectors import Access, find_access

T = TypeVar("T")


class OnlyJSON(BaseContentNegotiation):
    """We speak one language, whatever `Accept` or `?format=` ask for."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        return None

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> Any:
        return JSONRenderer(), "application/json"


class HubView(APIView):
    """Handlers return an `Answer`. `self.principal` is who asks, `self.query` the query string, checked as it is read."""

    content_negotiation_class = OnlyJSON
    principal: Principal
    query: Query

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        self.principal = cast(Principal, request.auth)
        quotas.requests().take(self.principal.agent_pk)
        self.query = Query(request.META.get("QUERY_STRING", ""))

    def options(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        raise MethodNotAllowed(allowed=self.allowed_methods)

    @property
    def allowed_methods(self) -> list[str]:
        return [method for method in super().allowed_methods if method != "OPTIONS"]

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        return response.as_response() if isinstance(response, Answer) else response

    def body(self, request: Request, decoder: msgspec.json.Decoder[T]) -> T:
        """The body by `decoder`; not more of it is read than we take."""
        # A body that announces itself as too large isn't read at all.
        data = b"" if declared_too_large(request.headers) else request._request.read(limits.FRAME_BYTES + 1)
        return read_body(data, request.headers, decoder)

    @property
    def reader_pk(self) -> int | None:
        """Whose eyes see the answer; None is an operator's, who sees everything."""
        return None if self.principal.is_operator else self.principal.agent_pk

    def caller(self) -> Agent:
        return Agent.objects.get(pk=self.principal.agent_pk)

    def require_operator(self) -> None:
        if not self.principal.is_operator:
            raise Forbidden("Only an operator may do this.")

    def refuse_operator(self) -> None:
        if self.principal.is_operator:
            raise Forbidden("An operator watches; to take part use an agent's key.")

    def create(
        self,
        request: Request,
        body: Any,
        make: Callable[[Changes], Answer],
        *,
        kept: Callable[[Answer], Answer] | None = None,
    ) -> Answer:
        """Have `make(changes)` create something, once per `Idempotency-Key`. `kept` says what to keep for the next time."""
        key = idempotency_key(request.headers)
        if key is None:
            with unit_of_work() as changes:
                return make(changes)
        return answer_once(self.principal.agent_pk, request.path, key, body, make, kept)


class SessionView(HubView):
    """A view under `sessions/{session_id}`: whether that is yours to see comes before everything else."""

    access: Access

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        self.principal = cast(Principal, request.auth)
        quotas.requests().take(self.principal.agent_pk)
        self.access = find_access(kwargs["session_id"], self.principal)
        self.query = Query(request.META.get("QUERY_STRING", ""))
