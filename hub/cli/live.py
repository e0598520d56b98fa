"""Replies in a terminal while they are written, and a prompt when it is the person's turn to type."""

from __future__ import annotations

from hub.cli.screen import Screen
from hub.client import Chunk, Message, Presence, SessionUpdate
from hub.client.frames import ServerFrame


class Growing:
    """A reply that appears as it is written. Chunks are hints: what was lost of them is shown with the message."""

    def __init__(self, screen: Screen, *, named: bool = False) -> None:
        self._screen = screen
        self._named = named
        self._stream_id: str | None = None
        self._text = ""

    @property
    def goes_on(self) -> bool:
        """Whether the last line holds a reply that is not whole yet."""
        return self._stream_id is not None

    def add(self, chunk: Chunk) -> None:
        """Show a chunk; one of another stream begins a line of its own."""
        if chunk.stream_id != self._stream_id:
            self.break_off()
            self._stream_id, self._text = chunk.stream_id, ""
            self._screen.piece(self._name(chunk.sender))
        self._text += chunk.text
        self._screen.piece(chunk.text)

    def end(self, message: Message) -> None:
        """Show what is not shown yet of a message: its end, or all of it when chunks of it were lost."""
        begun = self.goes_on and message.stream_id == self._stream_id and message.content.startswith(self._text)
        if begun:
            self._stream_id = None
            self._screen.piece(message.content[len(self._text) :] + "\n")
        else:
            self.break_off()
            self._screen.piece(f"{self._name(message.sender)}{message.content}\n")

    def break_off(self, *, ended: bool = False) -> None:
        """Something else needs the line, or has `ended` it. What else comes of the reply begins a new one."""
        if self.goes_on and not ended:
            self._screen.piece("\n")
        self._stream_id = None

    def _name(self, sender: str | None) -> str:
        return f"{sender}: " if self._named else ""


class LiveView:
    """The one writer of a live conversation; a prompt never comes between the pieces of a reply.

    What was typed may be acknowledged before, within or after its answer. So a prompt is not shown by who reads the keyboard:
    it comes when the last line holds neither a reply that goes on nor a prompt already.
    """

    PROMPT = "> "

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._reply = Growing(screen, named=True)
        self._prompted = False

    def prompt(self) -> None:
        """It is the person's turn, unless a reply is being written: its end will say so."""
        if not (self._screen.as_json or self._prompted or self._reply.goes_on):
            self._prompted = True
            self._screen.piece(self.PROMPT)

    def typed(self) -> None:
        """A line was typed: the terminal has shown it, and ended the line."""
        self._prompted = False
        self._reply.break_off(ended=True)

    def show(self, event: ServerFrame) -> None:
        """Show one event of the session; most have nothing to be shown."""
        if self._screen.as_json:
            if isinstance(event, Message):
                self._screen.data(event.as_dict())
        elif isinstance(event, Chunk):
            self._own_line()
            self._reply.add(event)
        elif isinstance(event, Message):
            self._own_line()
            self._reply.end(event)
            self.prompt()
        elif isinstance(event, Presence):
            self._note(f"{event.agent_id} is {event.status}")
            self.prompt()
        elif isinstance(event, SessionUpdate) and event.ended:
            self._note(f"the session is {event.status}")

    def _own_line(self) -> None:
        if self._prompted:
            self._screen.piece("\n")
            self._prompted = False

    def _note(self, text: str) -> None:
        self._own_line()
        self._reply.break_off()
        self._screen.note(text)
