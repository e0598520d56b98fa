"""Text frames of clients, read without Autobahn's general machine where they are plain: most of what a hub receives.

Measured, the machine (a state per octet group, logging arguments made for nobody) costs as much as the rest of a message.
What is not a whole, unfragmented, masked text frame of less than 64 KiB with valid UTF-8 is left to Autobahn untouched, so
that control frames, fragments, limits and protocol errors are still its own.
"""

from __future__ import annotations

import time

from daphne.ws_protocol import WebSocketProtocol

FIN_TEXT = 0x81
MASKED = 0x80


def take_text_frames(data: bytes) -> tuple[list[str], int]:
    """The plain text frames at the start of `data` (RFC 6455, section 5.2), and how many octets they took."""
    texts: list[str] = []
    at, end = 0, len(data)
    while end - at >= 6 and data[at] == FIN_TEXT:
        size = data[at + 1] - MASKED
        if size < 0 or size == 127:
            break
        key = at + 2
        if size == 126:
            size = data[at + 2] << 8 | data[at + 3]
            if size < 126:  # not the shortest form: Autobahn's to refuse
                break
            key = at + 4
        body = key + 4
        stop = body + size
        if stop > end:
            break
        mask = data[key:body]
        plain = int.from_bytes(data[body:stop], "little") ^ int.from_bytes((mask * (size // 4 + 1))[:size], "little")
        try:
            texts.append(plain.to_bytes(size, "little").decode("utf-8"))
        except UnicodeDecodeError:
            break
        at = stop
    return texts, at


class QuickWebSocket(WebSocketProtocol):  # type: ignore[misc]
    """Daphne's protocol with the short way in front; in the middle of a frame or message there is only the long one."""

    def _dataReceived(self, data: bytes) -> None:
        if (
            self.state == self.STATE_OPEN
            and not self.data
            and self.current_frame is None
            and not self.inside_message
            and not self.muted
            and self._perMessageCompress is None
        ):
            texts, taken = take_text_frames(data)
            if texts:
                self.last_ping = time.time()
                for text in texts:
                    self.application_queue.put_nowait({"type": "websocket.receive", "text": text})
                data = data[taken:]
                if not data:
                    return
        super()._dataReceived(data)
