"""The scripted model server on Anthropic's wire: `POST /v1/messages`, streamed as its documentation of streaming says."""

from __future__ import annotations

import json
from typing import Any

from hub.demo.model_server import Answer, ModelServer, _Handler


class AnthropicServer(ModelServer):
    """`base_url` has no `/v1`: that is part of this wire's paths."""

    @property
    def base_url(self) -> str:
        return super().base_url.removesuffix("/v1")

    @property
    def handler(self) -> type[_Handler]:
        return _AnthropicHandler


class _AnthropicHandler(_Handler):
    path_of_the_wire = "/v1/messages"

    def _stream(self, answer: Answer, number: int) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()

        def event(kind: str, **fields: Any) -> None:
            self.wfile.write(f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode())
            self.wfile.flush()

        message = {"id": f"m{number}", "type": "message", "role": "assistant", "model": "scripted", "content": []}
        usage = {"input_tokens": 11, "output_tokens": 1}
        event("message_start", message={**message, "stop_reason": None, "stop_sequence": None, "usage": usage})
        index = 0
        if answer.pieces:
            event("content_block_start", index=index, content_block={"type": "text", "text": ""})
            for piece in answer.pieces:
                event("content_block_delta", index=index, delta={"type": "text_delta", "text": piece})
            if answer.cut:
                self.close_connection = True
                return
            event("content_block_stop", index=index)
            index += 1
        for name, given in answer.calls:
            text = given if isinstance(given, str) else json.dumps(given)
            block = {"type": "tool_use", "id": f"call_{number}_{index}", "name": name, "input": {}}
            event("content_block_start", index=index, content_block=block)
            for part in (text[: len(text) // 2], text[len(text) // 2 :]):
                event("content_block_delta", index=index, delta={"type": "input_json_delta", "partial_json": part})
            event("content_block_stop", index=index)
            index += 1
        stop = answer.finish or ("tool_use" if answer.calls else "end_turn")
        event("message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage={"output_tokens": 7})
        event("message_stop")
        self.close_connection = True
