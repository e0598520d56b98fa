"""`/api/schema` and `/api/docs`: the document, and a page to read it on that needs nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from functools import cache

import msgspec
from django.http import HttpRequest, HttpResponse
from django.templatetags.static import static
from django.utils.html import format_html
from drf_spectacular.generators import SchemaGenerator

from sessions_app.protocol.errors import MethodNotAllowed

SCRIPT = """window.onload = () => SwaggerUIBundle({
  url: "/api/schema", dom_id: "#document", deepLinking: true, validatorUrl: null, tryItOutEnabled: true
});"""
_DIGEST = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
POLICY = (
    f"default-src 'self'; script-src 'self' 'sha256-{_DIGEST}'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; frame-ancestors 'none'"
)
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>Session Hub: REST</title>
<link rel="icon" href="{icon}"><link rel="stylesheet" href="{style}">
</head>
<body>
<div id="document"></div>
<noscript>The document itself is at <a href="/api/schema">/api/schema</a>.</noscript>
<script src="{bundle}"></script>
<script>{script}</script>
</body>
</html>
"""


@cache
def _document() -> bytes:
    """Made once: it takes longer than any call, and changes only with the code."""
    schema = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return msgspec.json.encode(schema)


def schema(request: HttpRequest) -> HttpResponse:
    _only_reading(request)
    response = HttpResponse(_document(), content_type="application/json")
    response["X-Content-Type-Options"] = "nosniff"
    return response


def docs(request: HttpRequest) -> HttpResponse:
    _only_reading(request)
    dist = "drf_spectacular_sidecar/swagger-ui-dist/"
    page = format_html(
        PAGE,
        icon=static(f"{dist}favicon-32x32.png"),
        style=static(f"{dist}swagger-ui.css"),
        bundle=static(f"{dist}swagger-ui-bundle.js"),
        script=_Plain(SCRIPT),
    )
    response = HttpResponse(page, content_type="text/html; charset=utf-8")
    response["Content-Security-Policy"] = POLICY
    response["X-Content-Type-Options"] = "nosniff"
    return response


class _Plain(str):
    """Our own script, which is no text to escape."""

    def __html__(self) -> str:
        return str(self)


def _only_reading(request: HttpRequest) -> None:
    if request.method not in ("GET", "HEAD"):
        raise MethodNotAllowed(allowed=["GET", "HEAD"])
