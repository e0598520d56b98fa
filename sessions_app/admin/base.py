"""What all our lists in the admin share: they never count, never search what no index serves, and never read for long."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.views.main import ORDER_VAR, ChangeList
from django.core.paginator import Paginator
from django.db import DatabaseError
from django.db.models import Model, QuerySet
from django.db.models.expressions import Combinable
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from sessions_app.admin.reading import TooSlow, read_time_limit
from sessions_app.db import is_outage, write_transaction
from sessions_app.protocol.errors import HubError

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]
else:
    ModelAdmin = admin.ModelAdmin

MAX_PAGES = 1000
"""Pages are found by skipping rows, so they end somewhere; the far end of a list is its first page in the other order."""
SEARCH_CHARACTERS = 200
READ_SECONDS = 5.0


def is_key(text: str) -> bool:
    """Whether `text` can be a row's integer key."""
    return text.isascii() and text.isdigit() and int(text[:20]) < 1 << 63


def column(field: str, head: str, *, boolean: bool = False) -> Callable[[Any, Any], Any]:
    """A list's column of a field whose own name is not for people; sorted by like the field."""

    @admin.display(description=head, ordering=field, boolean=boolean)
    def shown(self: Any, row: Any) -> Any:
        return getattr(row, field)

    return shown


class BoundedChangeList(ChangeList):
    """One page of a list of any length: reads a row more than it shows instead of counting, sorts by one indexed column."""

    model_admin: HubAdmin
    has_next: bool

    def __init__(self, request: HttpRequest, *arguments: Any) -> None:
        super().__init__(request, *arguments)
        if not self.is_popup:
            name = str(self.opts.verbose_name_plural)
            self.title = name[:1].upper() + name[1:]

    def get_results(self, request: HttpRequest) -> None:
        self.page_num = min(max(self.page_num, 1), MAX_PAGES)
        start = (self.page_num - 1) * self.list_per_page
        rows = list(self.queryset[start : start + self.list_per_page + 1])
        self.has_next = len(rows) > self.list_per_page and self.page_num < MAX_PAGES
        rows = rows[: self.list_per_page]
        self.model_admin.complete_rows(rows)
        # "All of them" is not offered: the counts that the templates compare are those of this page.
        self.result_count = self.full_result_count = len(rows)
        self.show_full_result_count = False
        self.show_admin_actions = bool(rows)
        self.result_list = rows
        self.can_show_all = self.multi_page = False
        self.paginator = Paginator(rows, self.list_per_page)

    @property
    def first_number(self) -> int:
        """The place of this page's first row in the list, from 1."""
        return (self.page_num - 1) * self.list_per_page + 1

    @property
    def last_number(self) -> int:
        return self.first_number + self.result_count - 1

    @property
    def previous_query(self) -> str:
        return self.get_query_string({"p": self.page_num - 1})

    @property
    def next_query(self) -> str:
        return self.get_query_string({"p": self.page_num + 1})

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[str | Combinable]:
        """The first column asked for that may be sorted by, else the list's own order; the key decides between equals."""
        for part in self.params.get(ORDER_VAR, "").split("."):
            _, minus, index = part.rpartition("-")
            try:
                name = self.list_display[int(index)]
            except (ValueError, IndexError):
                continue
            if name in (self.sortable_by or ()) and (field := self.get_ordering_field(name)):
                return self._with_key(f"{minus}{self.model_admin.order_field(request, str(field))}")
        return self._with_key(*map(str, self.model_admin.get_ordering(request)))

    def _with_key(self, *ordering: str) -> list[str | Combinable]:
        last = ordering[-1]
        if last.lstrip("-") in {"pk", "id", *self.model_admin.unique_orders}:
            return list(ordering)
        return [*ordering, "-pk" if last.startswith("-") else "pk"]


class HubAdmin(ModelAdmin):
    """An admin whose every page costs a bounded number of bounded queries.

    Subclasses say what may be searched (`search`), filtered (`list_filter` alone; no other look-up by the address is
    taken) and sorted (`sortable_by`), and add to a page's rows what one query can tell about all of them (`complete_rows`).
    """

    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    list_per_page = 50
    actions_selection_counter = True
    sortable_by: ClassVar[list[str]] = []
    unique_orders: ClassVar[list[str]] = []
    """Names of columns that are unique by themselves in the lists where they are sorted by."""

    class Media:
        css = {"all": ["sessions_app/admin.css"]}

    def order_field(self, request: HttpRequest, field: str) -> str:
        """The column that a list is really sorted by where `field` was asked for."""
        return field

    def complete_rows(self, rows: list[Any]) -> None:
        """Add to the rows of one page."""

    def search(self, queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
        """The rows that `term` (stripped, not empty) finds, by an index."""
        raise NotImplementedError

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return BoundedChangeList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        if not term or not self.search_fields:
            return queryset, False
        if len(term) > SEARCH_CHARACTERS or "\0" in term:
            return queryset.none(), False
        return self.search(queryset, term), False

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        return any(lookup == getattr(known, "parameter_name", None) for known in self.list_filter)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Rows that others point at are ended (revoked, switched off, closed), not deleted."""
        return False

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if request.method == "POST" and (problem := self._bad_selection(request)):
            self.message_user(request, problem, messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())
        if request.method == "POST":
            return super().changelist_view(request, extra_context)
        try:
            with read_time_limit(READ_SECONDS):
                return super().changelist_view(request, extra_context)
        except TooSlow:
            return self.refuse(request, "That took too long to find. Please narrow it down.", status=503)

    def _bad_selection(self, request: HttpRequest) -> str | None:
        """Why an action will not be run: it is for rows that were seen, so for one page of them at the most."""
        selected = request.POST.getlist(ACTION_CHECKBOX_NAME)
        if request.POST.get("select_across", "0") != "0" or len(selected) > self.list_per_page:
            return "An action is for one page of rows at the most."
        if not all(map(is_key, selected)):
            return "There are no such rows."
        return None

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        if request.method != "POST":
            return super().changeform_view(request, object_id, form_url, extra_context)
        try:
            # Ours around Django's: on SQLite the writers of all processes queue before they begin.
            with write_transaction():
                return super().changeform_view(request, object_id, form_url, extra_context)
        except HubError as error:
            self.message_user(request, error.message, messages.ERROR)
        except DatabaseError as error:
            if not is_outage(error):
                raise
            self.message_user(request, "The database could not do this now; please try again.", messages.ERROR)
        return HttpResponseRedirect(request.get_full_path())

    # --- pages of our own --------------------------------------------------------------------------------------------

    def page_name(self, page: str) -> str:
        return f"{self.admin_site.name}:{self.opts.app_label}_{self.opts.model_name}_{page}"

    def page_url(self, page: str, *arguments: Any) -> str:
        """The address of one of this model's pages: `changelist`, `change`, …"""
        return reverse(self.page_name(page), args=arguments)

    def context(self, request: HttpRequest, **more: Any) -> dict[str, Any]:
        """What a template that stands on the admin's base needs."""
        return {**self.admin_site.each_context(request), "opts": self.opts, "media": self.media, **more}

    def missing(self, request: HttpRequest, object_id: str) -> HttpResponseBase:
        """Nothing has that id: say so on the list, as Django's own pages do."""
        self.message_user(
            request,
            f"There is no {self.opts.verbose_name} “{object_id[:80]}”. Perhaps it was deleted?",
            messages.WARNING,
        )
        return HttpResponseRedirect(self.page_url("changelist"))

    def refuse(self, request: HttpRequest, why: str, *, status: int) -> TemplateResponse:
        return TemplateResponse(
            request,
            "admin/sessions_app/refused.html",
            self.context(request, title="Too much to read", why=why),
            status=status,
        )


class ReadOnlyAdmin(HubAdmin):
    """Rows that only the hub writes."""

    actions = None

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False
