"""Which model an agent speaks through, and within which limits: its `executor_config` over the settings. Pure.

    {"model": "openai:NAME", "base_url": "http://…/v1", "key": "LOCAL", "instructions": "…", "tools": ["scan_project"],
     "approve": ["delete_file"], "temperature": 0.2, "max_tokens": 2000,
     "limits": {"requests": 20, "tool_calls": 50, "tokens": 200000}}

`key` names a secret, it is none: `LOCAL` is the environment variable `HUB_LLM_KEY_LOCAL`. `HUB_LLM_BASE_URL` is where the
models of the hub's own provider are (that of `HUB_LLM_MODEL`, else OpenAI's wire); `HUB_LLM_API_KEY` goes there and nowhere
else. Left out, `tools` are all registered ones; `approve` are those that want a person's leave for each call besides the
tools that say so themselves.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings

PROVIDERS = ("openai", "anthropic")
NO_KEY = "none"  # local servers want none, the library wants something
_KEY_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,39}")


class NoModel(Exception):
    """No model can be chosen; `str()` is fit to be shown and names no secret."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one trace, all its attempts and steps together; 0 is none."""

    requests: int = 25
    tool_calls: int = 100
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Choice:
    """A model and where it is; `key` is the secret itself and never shown."""

    provider: str
    model: str
    base_url: str | None
    key: str
    limits: Limits
    temperature: float | None = None
    max_tokens: int | None = None

    def __repr__(self) -> str:
        return f"Choice({self.provider}:{self.model} at {self.base_url or 'its provider'})"


def is_configured(config: Mapping[str, Any]) -> bool:
    """Whether there is a model at all for an agent with this configuration."""
    return bool(config.get("model") or settings.HUB_LLM_MODEL)


def choose(config: Mapping[str, Any]) -> Choice:
    """The model of an agent with this `executor_config`; raises `NoModel`."""
    if "api_key" in config:
        raise NoModel("A secret has no place in executor_config: name an environment variable by `key`.")
    name = str(config.get("model") or settings.HUB_LLM_MODEL)
    if not name:
        raise NoModel("No model is configured (HUB_LLM_MODEL, or `model` in the agent's executor_config).")
    provider, model = _parted(name)
    ours = provider == _parted(settings.HUB_LLM_MODEL)[0]
    base_url = config.get("base_url") or (settings.HUB_LLM_BASE_URL if ours else None) or None
    given = config.get("limits")
    limits = given if isinstance(given, Mapping) else {}
    return Choice(
        provider=provider,
        model=model,
        base_url=str(base_url) if base_url else None,
        key=_key(config, base_url, ours),
        limits=Limits(
            requests=_whole(limits.get("requests"), settings.HUB_LLM_REQUESTS),
            tool_calls=_whole(limits.get("tool_calls"), settings.HUB_LLM_TOOL_CALLS),
            tokens=_whole(limits.get("tokens"), settings.HUB_LLM_TOKENS),
        ),
        temperature=_number(config.get("temperature")),
        max_tokens=_whole(config.get("max_tokens"), 0) or None,
    )


def _parted(name: str) -> tuple[str, str]:
    """Provider and model of a name."""
    provider, _, model = name.partition(":")
    return (provider, model) if provider in PROVIDERS else ("openai", name)  # local names have colons, too: qwen3:8b


def _key(config: Mapping[str, Any], base_url: Any, ours: bool) -> str:
    name = config.get("key")
    if name is not None:
        if not isinstance(name, str) or _KEY_NAME.fullmatch(name) is None:
            raise NoModel("`key` names an environment variable: HUB_LLM_KEY_ and capitals, digits, underscores.")
        secret = os.environ.get(f"HUB_LLM_KEY_{name}", "")
        if not secret:
            raise NoModel(f"The environment variable HUB_LLM_KEY_{name} is not set.")
        return secret
    if ours and (base_url or "") == settings.HUB_LLM_BASE_URL and settings.HUB_LLM_API_KEY:
        return str(settings.HUB_LLM_API_KEY)
    return NO_KEY


def _whole(value: Any, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
