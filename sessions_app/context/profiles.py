"""What a reader may get of a session's messages. Pure: a profile is a value, and showing a message is a function of it.

A profile is JSON; a field that is absent or null restricts nothing, unknown fields are refused:

    {"senders": ["a"], "withheld_senders": ["b"], "kinds": ["chat"], "withheld_kinds": ["tool_call"],
     "part_types": ["text"], "withheld_part_types": ["UserContext"], "withheld_labels": ["secret", "*"],
     "redactions": [{"pattern": "ak_[A-Za-z0-9_]{8,64}", "replacement": "[key]"}],
     "withheld_context": ["previous_results"], "scope": "all" | "addressed"}

The type of a part is its `metadata.type`, else `text`, `data`, `url` or `raw`. Labels are `metadata.sensitivity` of a
message or of a part (a string or a list). `scope: addressed` narrows what a reader finds by itself to what it sent, what
addresses it and what was injected; it does not bear on what may be injected. What an agent sent itself is always shown to it.
What is made of others' words (`metadata.provenance`; for a key of the shared context see `shared`) is withheld from whoever may
not get all of them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct, structs

from sessions_app.changes import Committed
from sessions_app.context.provenance import Provenance, labels_of, part_type
from sessions_app.context.provenance import read as read_provenance
from sessions_app.context.redaction import Patterns, redact, redact_part, redact_value
from sessions_app.context.shared import Shared, Words
from sessions_app.protocol.classify import RuleError, effort
from sessions_app.protocol.errors import Invalid
from sessions_app.protocol.ids import HUB
from sessions_app.protocol.jsontext import dumps

ALL, ADDRESSED = "all", "addressed"
EVERYTHING = "everything"
"""The hash of those who may see everything."""
ANY_LABEL = "*"
MAX_NAMES = 1000
MAX_REDACTIONS = 50
MAX_PATTERN = 500
MAX_EFFORT = 2_000  # steps at one place of a text; a message has up to 256 Ki places
EXTERNAL_KIND = "external"
EXTERNAL_EXECUTORS = frozenset({"a2a"})


class Redaction(Struct, frozen=True, forbid_unknown_fields=True):
    pattern: str
    replacement: str = "[redacted]"


class Profile(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What may be got; see the module. Compare profiles by `digest`."""

    senders: tuple[str, ...] | None = None
    withheld_senders: tuple[str, ...] | None = None
    kinds: tuple[str, ...] | None = None
    withheld_kinds: tuple[str, ...] | None = None
    part_types: tuple[str, ...] | None = None
    withheld_part_types: tuple[str, ...] | None = None
    withheld_labels: tuple[str, ...] | None = None
    redactions: tuple[Redaction, ...] | None = None
    withheld_context: tuple[str, ...] | None = None
    scope: str = ALL

    @property
    def judges_parts(self) -> bool:
        """Whether the text of a message must be looked at, and not only where it comes from."""
        return bool(self.part_types is not None or self.withheld_part_types or self.withheld_labels or self.redactions)


EXTERNAL_PROFILE = Profile(scope=ADDRESSED)
"""What an agent of another organisation gets unless somebody says otherwise."""


def check_profile(value: Any, field: str = "visibility") -> dict[str, Any] | None:
    """A profile as it is stored; raises `Invalid`. Patterns whose cost isn't bounded are refused."""
    if value is None:
        return None
    try:
        profile = msgspec.convert(value, Profile)
    except msgspec.ValidationError as error:
        raise Invalid(f"{field}: {error}.", field=field) from None
    if profile.scope not in (ALL, ADDRESSED):
        raise Invalid(f"{field}: scope is {ALL} or {ADDRESSED}.", field=field)
    for name in Profile.__struct_fields__:
        given = getattr(profile, name)
        if isinstance(given, tuple) and len(given) > (MAX_REDACTIONS if name == "redactions" else MAX_NAMES):
            raise Invalid(f"{field}: {name} is too long.", field=field)
    for redaction in profile.redactions or ():
        if not 1 <= len(redaction.pattern) <= MAX_PATTERN or len(redaction.replacement) > MAX_PATTERN:
            raise Invalid(f"{field}: a pattern has 1 to {MAX_PATTERN} characters.", field=field)
        try:
            re.compile(redaction.pattern)
            costly = effort(redaction.pattern) > MAX_EFFORT
        except (re.error, RuleError, OverflowError, RecursionError) as error:
            raise Invalid(f"{field}: {redaction.pattern!r} is no pattern: {error}.", field=field) from None
        if costly:
            raise Invalid(f"{field}: repeats in {redaction.pattern!r} must be bounded.", field=field)
    plain: dict[str, Any] = msgspec.to_builtins(profile)
    return plain or None


@lru_cache(maxsize=4096)
def _profile(text: str) -> Profile:
    return msgspec.json.decode(text, type=Profile)


@dataclass(frozen=True, slots=True)
class View:
    """A reader's eye on one session. `profile` None sees everything; `floor` is the reader's `first_sequence`.

    `hash` keys what is derived from what this reader sees, `frames` what may be shared with other readers of messages.
    """

    agent_id: str
    profile: Profile | None
    floor: int = 1
    hash: str = EVERYTHING
    frames: str = ""

    def __bool__(self) -> bool:
        """Whether anything is to be filtered at all; the normal case is that nothing is."""
        return self.profile is not None

    @property
    def looks_up(self) -> bool:
        """Whether showing a message takes a look at other rows (`viewing.show_all`)."""
        return self.profile is not None and self.profile.scope == ADDRESSED

    # Messages

    def show(self, message: Committed, injected: Collection[int] = ()) -> Committed:
        """What this reader gets of a message: the message, a part of it, or its withheld place.

        `injected` are keys of messages that it has been given; they matter to `scope: addressed` alone.
        """
        if self.profile is None or message.sender == self.agent_id:
            return message
        if self.profile.scope == ADDRESSED and message.key in injected:
            return _shown(message, self.profile, "", ignore_scope=True)
        if message.views is None:
            message.views = {}
        known = message.views.get(self.frames)
        if known is None:
            known = message.views[self.frames] = _shown(message, self.profile, self.agent_id)
        return known

    def injectable(self, message: Committed) -> Committed:
        """The same for what may be given to this reader, whatever it would find by itself."""
        if self.profile is None or message.sender == self.agent_id:
            return message
        return _shown(message, self.profile, self.agent_id, ignore_scope=True)

    def admits(self, sender: str, kind: str, made_of: Provenance | None = None) -> bool:
        """Whether messages of this sender and kind may be seen at all; what they hold may still be withheld."""
        if self.profile is None or sender == self.agent_id:
            return True
        return _admits(self.profile, sender, kind) and _may_derive(made_of, self.profile)

    def trusts(self, sender: str, made_of: Provenance | None = None, *, asked: bool = False) -> bool:
        """Whether text of this sender that is not (yet) a message, such as a chunk, can be shown as it is.

        `asked`: this reader asked for it, so it is addressed to him.
        """
        if self.profile is None or sender == self.agent_id:
            return True
        return (
            (asked or self.profile.scope == ALL)
            and not self.profile.judges_parts
            and self.admits(sender, "result", made_of)
        )

    def may_get(self, made_of: Provenance | None) -> bool:
        """Whether everything could be got that a text is made of."""
        return self.profile is None or _may_derive(made_of, self.profile)

    # The session's context

    def context(self, shared: Shared) -> dict[str, Any]:
        """The shared context without what is withheld: by its key, or because not all that stands there may be got.

        Results of traces stay where their messages would be shown whole.
        """
        if self.profile is None:
            return dict(shared.values)
        return dict(redact_value(self._kept(shared, self.profile), _patterns(self.profile)))

    def shared(self, shared: Shared) -> Shared:
        """The same with whose words that is, to be shared elsewhere."""
        if self.profile is None:
            return shared
        kept, patterns = self._kept(shared, self.profile), _patterns(self.profile)
        words = [
            structs.replace(each, keys=tuple(redact(key, patterns) for key in each.keys if key in kept))
            for each in shared.words
        ]
        return Shared(redact_value(kept, patterns), [each for each in words if each.keys])

    def _kept(self, shared: Shared, profile: Profile) -> dict[str, Any]:
        withheld = {*(profile.withheld_context or ())}
        withheld.update(key for words in shared.words if not self._may_get_words(words) for key in words.keys)
        kept: dict[str, Any] = {}
        for name, value in shared.values.items():
            if name in withheld:
                continue
            if name == "previous_results" and isinstance(value, dict):
                value = {trace: result for trace, result in value.items() if self._trusts_summary(result)}
            kept[name] = value
        return kept

    def _may_get_words(self, words: Words) -> bool:
        """Whoever wrote all of it himself may; a patch is no message, so that of another is judged by who he is alone."""
        if self.profile is None or set(words.by) == {self.agent_id}:
            return True
        heard = all(name == self.agent_id or _may_hear(name, self.profile) for name in words.by)
        return heard and self.may_get(words.made_of)

    def _trusts_summary(self, result: Any) -> bool:
        return isinstance(result, dict) and self.trusts_result(
            str(result.get("agent_id", "")), read_provenance(result.get("provenance"))
        )

    def trusts_result(self, sender: str, made_of: Provenance | None = None, *, asked: bool = False) -> bool:
        """Whether a result's summary may be shown apart from its message: labels can't be seen on it, redaction can be done.

        `asked`: this reader asked for it, so it is addressed to him.
        """
        if self.profile is None or sender == self.agent_id:
            return True
        profile = self.profile
        if (
            (profile.scope == ADDRESSED and not asked)
            or profile.withheld_labels
            or not self.admits(sender, "result", made_of)
        ):
            return False
        return _wants_part("text", profile)

    def redact(self, value: Any) -> Any:
        """A JSON value with its texts redacted."""
        return value if self.profile is None else redact_value(value, _patterns(self.profile))

    def show_parts(self, parts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Those of these parts that may be seen, as they may be seen."""
        if self.profile is None:
            return [dict(part) for part in parts]
        patterns = _patterns(self.profile)
        shown = (redact_part(dict(part), patterns) for part in parts if _wanted(part, self.profile))
        return [part for part in shown if part is not None]


def view_of(
    agent_id: str,
    own: str | None,
    agents: str | None,
    *,
    kind: str = "agent",
    executor: str | None = None,
    floor: int = 1,
) -> View:
    """A reader's view from the profiles of its place (`own`) and of the agent, as stored; the stronger is the place's.

    Without either, an agent of another organisation has `EXTERNAL_PROFILE`, everybody else sees everything.
    """
    text = own if own is not None else agents
    if text is None and (kind == EXTERNAL_KIND or executor in EXTERNAL_EXECUTORS):
        return _view(agent_id, EXTERNAL_PROFILE, floor)
    if text is None and floor <= 1:
        return View(agent_id, None)
    return _view(agent_id, _profile(text) if text is not None else None, floor)


def open_view(agent_id: str = "", floor: int = 1) -> View:
    """The view of an operator, and of the hub itself."""
    return View(agent_id, None, floor, _digest(EVERYTHING, str(floor)) if floor > 1 else EVERYTHING)


def _view(agent_id: str, profile: Profile | None, floor: int) -> View:
    if profile is None:
        return open_view(agent_id, floor)
    name = digest(profile)
    # Own messages are shown whole and `addressed` names the reader, so what is derived is each reader's own.
    derived = _digest(name, agent_id, str(floor) if floor > 1 else "")
    return View(agent_id, profile, floor, derived, name if profile.scope == ALL else derived)


@lru_cache(maxsize=4096)
def digest(profile: Profile) -> str:
    """A name for what a profile lets through."""
    plain = dict(sorted(msgspec.to_builtins(profile).items()))
    return _digest(dumps(plain))


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


# How a message is shown


class _Body(Struct):
    """The fields of an encoded message that showing it depends on."""

    to: list[str] | None
    kind: str
    content: str
    parts: list[dict[str, Any]]
    metadata: dict[str, Any]


_body = msgspec.json.Decoder(_Body)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _admits(profile: Profile, sender: str, kind: str) -> bool:
    if kind == "system" and sender == HUB and (profile.kinds is None or "system" in profile.kinds):
        return "system" not in (profile.withheld_kinds or ())
    return (
        _may_hear(sender, profile)
        and (profile.kinds is None or kind in profile.kinds)
        and kind not in (profile.withheld_kinds or ())
    )


def _may_hear(sender: str, profile: Profile) -> bool:
    return (profile.senders is None or sender in profile.senders) and sender not in (profile.withheld_senders or ())


def _shown(message: Committed, profile: Profile, reader: str, *, ignore_scope: bool = False) -> Committed:
    body = _body.decode(message.body)
    if not _admits(profile, message.sender, body.kind) or _labelled(body.metadata, profile):
        return _withheld(message)
    if "provenance" in body.metadata and not _may_derive(read_provenance(body.metadata["provenance"]), profile):
        return _withheld(message)
    if profile.scope == ADDRESSED and not ignore_scope and reader not in (body.to or ()) and body.kind != "system":
        return _withheld(message)
    if body.kind == "system" and message.reply_to is not None and _tells_of_work(profile):
        return _withheld(message)  # an answer about running work quotes what others asked for
    if not profile.judges_parts:
        return message
    patterns = _patterns(profile)
    redacted = (redact_part(part, patterns) for part in body.parts if _wanted(part, profile))
    parts = [part for part in redacted if part is not None]
    metadata = redact_value(body.metadata, patterns)
    if parts == body.parts and metadata == body.metadata:
        return message
    if not parts:
        return _withheld(message)
    text = "\n".join(part["text"] for part in parts if isinstance(part.get("text"), str))
    return _with(message, content=text, parts=parts, metadata=metadata)


def _tells_of_work(profile: Profile) -> bool:
    return bool(
        profile.scope == ADDRESSED
        or profile.senders is not None
        or profile.withheld_senders
        or profile.kinds is not None
        or profile.withheld_kinds
        or profile.withheld_labels
    )


def _labelled(metadata: Any, profile: Profile) -> bool:
    return bool(profile.withheld_labels) and _withholds(labels_of(metadata), profile)


def _withholds(labels: Sequence[str], profile: Profile) -> bool:
    withheld = profile.withheld_labels
    if not withheld or not labels:
        return False
    names = {name.casefold() for name in withheld}
    return ANY_LABEL in withheld or any(label.casefold() in names for label in labels)


def _may_derive(made_of: Provenance | None, profile: Profile) -> bool:
    """Whether everything that a text is made of could be got. The same for all readers with this profile: views are shared."""
    return made_of is None or (
        all(_admits(profile, agent, "result") for agent in made_of.agents)
        and not _withholds(made_of.labels, profile)
        and all(_wants_part(kind, profile) for kind in made_of.part_types)
    )


def _wants_part(kind: str, profile: Profile) -> bool:
    return (profile.part_types is None or kind in profile.part_types) and kind not in (
        profile.withheld_part_types or ()
    )


def _wanted(part: Mapping[str, Any], profile: Profile) -> bool:
    return not _labelled(part.get("metadata"), profile) and _wants_part(part_type(part), profile)


@lru_cache(maxsize=1024)
def _patterns(profile: Profile) -> Patterns:
    return tuple((re.compile(redaction.pattern), redaction.replacement) for redaction in profile.redactions or ())


def _withheld(message: Committed) -> Committed:
    return _with(message, content="", parts=[], metadata={}, withheld=True)


def _with(message: Committed, **changed: Any) -> Committed:
    """The same message with other fields; everything else is the text that it was."""
    fields = _fields.decode(message.body)
    fields.update({name: msgspec.Raw(msgspec.json.encode(value)) for name, value in changed.items()})
    return Committed(
        message.key,
        message.session_pk,
        message.sequence,
        message.sender,
        message.kind,
        dumps(fields),
        message.reply_to,
        message.trace_id,
        None if changed.get("withheld") else message.stream_id,
        message.timestamp,
        withheld=bool(changed.get("withheld")),
    )


__all__ = [
    "ADDRESSED",
    "ALL",
    "EVERYTHING",
    "EXTERNAL_PROFILE",
    "Profile",
    "Redaction",
    "View",
    "check_profile",
    "digest",
    "open_view",
    "part_type",
    "view_of",
]
