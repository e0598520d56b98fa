"""The one thing that may be done to rows that nobody edits: asked first, for one on its page or for several on the list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from django import forms
from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseBase, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.urls import URLPattern, path

from sessions_app.admin.base import HubAdmin
from sessions_app.changes import Changes, unit_of_work
from sessions_app.db import is_outage
from sessions_app.protocol.errors import HubError


class AskingAdmin(HubAdmin):
    """Subclasses name the verb and do it. It is a page below a row's (`…/close/`), and an action of the list: a method
    `close_selected` that returns `self.selected(request, queryset)`."""

    verb: ClassVar[str]
    verb_titles: ClassVar[tuple[str, str]]
    """Above the question about one row, and about several."""
    verb_question: ClassVar[str]
    verb_button: ClassVar[str]

    def do(self, request: HttpRequest, rows: list[Any], form: forms.Form | None) -> None:
        """Do it to these rows, and tell the user of each that could not be had; `form` is valid, if there is one."""
        raise NotImplementedError

    def named(self, row: Any) -> tuple[str, str]:
        """A row in the question: its name, and what else tells it apart."""
        raise NotImplementedError

    def verb_form(self, data: QueryDict | None) -> forms.Form | None:
        """What is asked besides."""
        return None

    def get_urls(self) -> list[URLPattern]:
        page = path(
            f"<path:object_id>/{self.verb}/",
            self.admin_site.admin_view(self.verb_view),
            name=f"{self.opts.app_label}_{self.opts.model_name}_{self.verb}",
        )
        return [page, *super().get_urls()]

    def verb_view(self, request: HttpRequest, object_id: str) -> HttpResponseBase:
        row = self.get_object(request, unquote(object_id))
        if not self.has_change_permission(request, row):
            raise PermissionDenied
        if row is None:
            return self.missing(request, object_id)
        back = self.page_url("change", row.pk)
        form = self.verb_form(request.POST if request.method == "POST" else None)
        if request.method == "POST" and (form is None or form.is_valid()):
            self.do(request, [row], form)
            return HttpResponseRedirect(back)
        return self._ask(request, [row], form, back=back)

    def selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponseBase | None:
        rows = list(queryset)
        confirmed = "confirmed" in request.POST
        form = self.verb_form(request.POST if confirmed else None)
        if confirmed and (form is None or form.is_valid()):
            self.do(request, rows, form)
            return None
        return self._ask(request, rows, form, back=self.page_url("changelist"), action=f"{self.verb}_selected")

    def _ask(
        self,
        request: HttpRequest,
        rows: Sequence[Any],
        form: forms.Form | None,
        *,
        back: str,
        action: str | None = None,
    ) -> HttpResponseBase:
        return TemplateResponse(
            request,
            "admin/sessions_app/confirm.html",
            self.context(
                request,
                title=self.verb_titles[0 if action is None else 1],
                question=self.verb_question,
                things=[self.named(row) for row in rows],
                keys=[row.pk for row in rows],
                key_field=ACTION_CHECKBOX_NAME,
                action=action,
                form=form,
                button=self.verb_button,
                back=back,
            ),
        )

    def one_by_one(self, request: HttpRequest, rows: list[Any], act: Callable[[Any, Changes], bool]) -> tuple[int, int]:
        """`act` on each in a unit of work of its own, so that one that fails keeps none of the others. Returns to how many
        it was done, and for how many there was nothing to do."""
        done = idle = 0
        for row in sorted(rows, key=lambda row: int(row.pk)):
            try:
                with unit_of_work() as changes:
                    acted = act(row, changes)
                done, idle = done + acted, idle + (not acted)
            except HubError as error:
                self.message_user(request, f"{self.named(row)[0]}: {error.message}", messages.ERROR)
            except DatabaseError as error:
                if not is_outage(error):
                    raise
                self.message_user(request, f"{self.named(row)[0]}: the database is busy; try again.", messages.ERROR)
        return done, idle
