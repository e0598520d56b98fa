"""From any exception to one envelope."""

from __future__ import annotations

import json
import logging

import pytest
from django.core.exceptions import DisallowedHost, PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.http import Http404
from django.urls import Resolver404
from rest_framework import exceptions as drf

from sessions_app.protocol import errors
from sessions_app.rest.errors import HTTP_STATUS, as_refusal, error_answer


def test_every_error_of_the_contract_has_a_status_and_no_other_has() -> None:
    assert set(HTTP_STATUS) == {error.code for error in errors.ALL}
    assert all(400 <= status < 600 for status in HTTP_STATUS.values())


@pytest.mark.parametrize("kind", errors.ALL, ids=lambda kind: kind.code)
def test_every_error_becomes_its_envelope(kind: type[errors.HubError]) -> None:
    answer = error_answer(kind("A sentence.", field="x"))
    assert answer.status == HTTP_STATUS[kind.code]
    assert json.loads(answer.body) == {"code": kind.code, "message": "A sentence.", "details": {"field": "x"}}


@pytest.mark.parametrize(("seconds", "header"), [(0.001, "1"), (0.5, "1"), (1.2, "2"), (60, "60")])
def test_retry_after_is_whole_seconds_and_never_too_early(seconds: float, header: str) -> None:
    assert error_answer(errors.RateLimited(retry_after=seconds)).headers["Retry-After"] == header
    assert error_answer(errors.Unavailable()).headers["Retry-After"] == "1"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.Busy(), "busy"),
        (Http404("secret"), "not_found"),
        (Resolver404({"path": "secret"}), "not_found"),
        (DisallowedHost("secret"), "invalid"),
        (SuspiciousOperation("secret"), "invalid"),
        (RequestDataTooBig("secret"), "too_large"),
        (PermissionDenied("secret"), "forbidden"),
        (drf.NotFound(), "not_found"),
        (drf.MethodNotAllowed("PUT"), "method_not_allowed"),
        (drf.NotAuthenticated(), "unauthenticated"),
        (drf.AuthenticationFailed("secret"), "unauthenticated"),
        (drf.PermissionDenied("secret"), "forbidden"),
        (drf.UnsupportedMediaType("secret"), "unsupported"),
        (drf.Throttled(), "rate_limited"),
        (drf.ParseError("secret"), "invalid"),
        (ValueError("secret"), "internal"),
        (RecursionError("secret"), "internal"),
    ],
)
def test_what_others_raise_is_translated_and_what_they_say_is_not_passed_on(error: Exception, code: str) -> None:
    refusal = as_refusal(error, where="GET /x")
    assert refusal.code == code
    assert "secret" not in json.dumps(refusal.body())


def test_a_defect_is_logged_with_its_place_and_no_line_can_be_forged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "hub.rest"):
        as_refusal(ValueError("why"), where="GET /x\r\n2026 ERROR forged ak_secretsecret")
    (record,) = caplog.records
    assert record.exc_info is not None
    assert "\n" not in record.getMessage()
    assert "secretsecret" not in record.getMessage()
