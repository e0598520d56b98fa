"""The operator's rules of what kind a message is; they come before the built-in ones."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from sessions_app.admin.base import HubAdmin, ModelAdmin, column
from sessions_app.models import KindRule
from sessions_app.protocol.classify import DEFAULT_RULES, KINDS, MAX_PATTERN, Classifier, Rule, RuleError


class KindRuleForm(forms.ModelForm):  # type: ignore[type-arg]  # not subscriptable when it runs
    kind = forms.ChoiceField(choices=[(kind, kind) for kind in KINDS])
    pattern = forms.CharField(
        max_length=min(500, MAX_PATTERN),
        strip=False,
        widget=forms.Textarea(attrs={"class": "vLargeTextField hub-json", "rows": 3}),
        help_text="A regular expression that the message's request begins with, in any case. Repeats must be bounded.",
    )
    sample = forms.CharField(
        required=False,
        max_length=2000,
        label="Try it on",
        widget=forms.Textarea(attrs={"class": "vLargeTextField", "rows": 2}),
        help_text="A message that this rule must decide, when you want that checked. It is not stored.",
    )

    class Meta:
        model = KindRule
        fields = ["name", "kind", "pattern", "position", "is_active"]

    def clean(self) -> dict[str, Any]:
        """As the classifier would take it: a rule that it refuses must never be stored, or it would refuse all of them."""
        given: dict[str, Any] = super().clean() or self.cleaned_data
        if not {"name", "kind", "pattern"} <= given.keys():
            return given
        rule = Rule(given["name"], given["kind"], given["pattern"])
        try:
            alone = Classifier([rule])
        except RuleError as error:
            self.add_error("pattern", str(error))
            return given
        if given["name"] in {built_in.name for built_in in DEFAULT_RULES}:
            self.add_error("name", "A built-in rule has this name.")
        sample = given.get("sample")
        if sample and alone.classify(sample).rule is None:
            self.add_error("sample", "The rule does not match this message.")
        return given

    def clean_position(self) -> int:
        position: int = self.cleaned_data["position"]
        if not -(2**31) <= position < 2**31:
            raise ValidationError("That is too far away.")
        return position


@admin.register(KindRule)
class KindRuleAdmin(HubAdmin):
    form = KindRuleForm
    list_display = ["name", "kind", "pattern", "position", "active"]
    sortable_by = ["position"]
    ordering = ["position"]
    fields = ["name", "kind", "pattern", "position", "is_active", "sample"]

    active = column("is_active", "active", boolean=True)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return ModelAdmin.has_delete_permission(self, request, obj)

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        return {}

    def search(self, queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
        return queryset.filter(name__icontains=term)
