"""The rules of the admin as the classifier takes them."""

from __future__ import annotations

import pytest

from sessions_app.drafts import Kinds
from sessions_app.models import KindRule

pytestmark = pytest.mark.django_db


def test_a_rule_that_does_not_fit_is_left_out_and_the_others_hold() -> None:
    KindRule.objects.create(name="open bracket", kind="task", pattern="(")
    KindRule.objects.create(name="endless", kind="task", pattern="(a+)+b")
    KindRule.objects.create(name="brew", kind="task", pattern="brew ")
    kinds = Kinds()
    kinds.refresh()
    decision = kinds.classifier.classify("brew a pot")
    assert (decision.kind, decision.classified_by) == ("task", "rule:brew")
    assert kinds.classifier.classify("read file a.py").kind == "tool_call"
    KindRule.objects.filter(name="brew").update(is_active=False)
    kinds.refresh()
    assert kinds.classifier.classify("brew a pot").kind == "chat"
