"""An endpoint that speaks OpenAI's chat completions, streaming included, and answers as a function says. For demos and tests."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model says to one request: pieces of text, then calls `(name, arguments)`.

    Faults: `status` other than 200; `cut` ends the connection after the text; `error` is sent inside the stream; `seconds`
    is the pause before each piece.
    """

    pieces: Sequence[str] = ()
    calls: Sequence[tuple[str, dict[str, Any] | str]] = ()
    status: int = 200
    cut: bool = False
    error: bool = False
    seconds: float = 0.0
    finish: str | None = None


Script = Callable[[dict[str, Any]], Answer]


@dataclass
class ModelServer:
    """`with ModelServer(script) as server:` listens on a free loopback port.

    `requests` are what came, `bodies` the same as text, byte for byte.
    """

    script: Script
    requests: list[dict[str, Any]] = field(default_factory=list)
    bodies: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    left: threading.Event = field(default_factory=threading.Event)
    """Set when a client went away in the middle of an answer."""

    def __enter__(self) -> ModelServer:
        server = self
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (self.handler,), {"server_of": server}))
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(5)

    @property
    def handler(self) -> type[_Handler]:
        """What speaks the wire; another one may speak another."""
        return _Handler

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_of: ModelServer
    path_of_the_wire = "/chat/completions"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        received = self.rfile.read(int(self.headers["Content-Length"])).decode()
        body = json.loads(received)
        server = self.server_of
        server.bodies.append(received)
        server.requests.append(body)
        server.keys.append(self.headers.get("Authorization", ""))
        answer = server.script(body)
        if not self.path.split("?")[0].endswith(self.path_of_the_wire) or answer.status != 200:
            self._send(answer.status if answer.status != 200 else 404, {"error": {"message": "as the script says"}})
        elif body.get("stream"):
            try:
                self._stream(answer, len(server.requests))
            except OSError:
                server.left.set()
                self.close_connection = True
        else:
            self._whole(answer, body, len(server.requests))

    def _send(self, status: int, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _calls(self, answer: Answer, number: int) -> list[dict[str, Any]]:
        return [
            {
                "index": index,
                "id": f"call_{number}_{index}",
                "type": "function",
                "function": {"name": name, "arguments": given if isinstance(given, str) else json.dumps(given)},
            }
            for index, (name, given) in enumerate(answer.calls)
        ]

    def _whole(self, answer: Answer, body: dict[str, Any], number: int) -> None:
        said: dict[str, Any] = {"role": "assistant", "content": "".join(answer.pieces) or None}
        if answer.calls:
            said["tool_calls"] = self._calls(answer, number)
        finish = answer.finish or ("tool_calls" if answer.calls else "stop")
        self._send(
            200,
            {
                "id": f"c{number}",
                "object": "chat.completion",
                "created": int(time.time()),
                "model": body["model"],
                "choices": [{"index": 0, "message": said, "finish_reason": finish}],
                "usage": _usage(answer),
            },
        )

    def _stream(self, answer: Answer, number: int) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()

        def event(delta: dict[str, Any] | None, finish: str | None = None, **more: Any) -> None:
            choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
            value = {
                "id": f"c{number}",
                "object": "chat.completion.chunk",
                "created": 1,
                "model": "scripted",
                "choices": choices,
                **more,
            }
            self.wfile.write(f"data: {json.dumps(value)}\n\n".encode())
            self.wfile.flush()

        event({"role": "assistant", "content": ""})
        for piece in answer.pieces:
            time.sleep(answer.seconds)
            event({"content": piece})
        if answer.error:
            self.wfile.write(b'data: {"error": {"message": "overloaded", "type": "server_error"}}\n\n')
        if answer.cut or answer.error:
            self.close_connection = True
            return
        for call in self._calls(answer, number):
            whole = call["function"]["arguments"]
            event({"tool_calls": [{**call, "function": {**call["function"], "arguments": ""}}]})
            for part in (whole[: len(whole) // 2], whole[len(whole) // 2 :]):
                event({"tool_calls": [{"index": call["index"], "function": {"arguments": part}}]})
        event({}, answer.finish or ("tool_calls" if answer.calls else "stop"))
        event(None, usage=_usage(answer))
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True


def _usage(answer: Answer) -> dict[str, int]:
    said = max(1, len("".join(answer.pieces)))
    return {"prompt_tokens": 11, "completion_tokens": said, "total_tokens": 11 + said}
