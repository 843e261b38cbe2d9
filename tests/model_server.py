"""An OpenAI-compatible server around a real model, for tests: loopback, any free port.

    with ModelServer("divtok/tiny-0.5m") as server:
        ...  # ask server.base_url; what was asked is in server.asked

It answers as vLLM does, also where that goes beyond OpenAI: `prompt_logprobs`, `return_token_ids`
and `return_tokens_as_token_ids`. Options make it misbehave in the ways that servers do. Log-probs
are those of the model's own distribution, whatever the temperature.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

import numpy as np

from divtok.generate.decoding import Ask, Written, decode
from divtok.models.load import LoadedModel, load_model
from divtok.records import Sampling

# Decoding changes transformers' table of attention functions, which all models of a process share.
_ONE_AT_A_TIME = threading.RLock()


class Refused(Exception):
    """A request that gets an error for an answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class ModelServer:
    """`late` moves the log-probs of prompts by so many tokens; a negative number makes them early.

    `rounded` "bf16" or a number of decimals; `max_logprobs` the largest K that is not refused;
    `prompt_logprobs`, `echo`, `token_id_keys` and `token_ids` False for a server that knows no such
    thing and ignores the wish; `broken_after` answers to scoring requests, all later ones are 500.
    """

    model: str | LoadedModel
    name: str | None = None
    late: int = 0
    rounded: str | int | None = None
    max_logprobs: int | None = None
    max_model_len: int | None = None
    prompt_logprobs: bool = True
    echo: bool = True
    token_id_keys: bool = True
    token_ids: bool = True
    broken_after: int | None = None
    pause: float = 0.0  # seconds from event to event of a stream
    sent: int = 0  # events of streams
    left: threading.Event = field(default_factory=threading.Event)  # a client closed a stream
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.loaded = self.model if isinstance(self.model, LoadedModel) else load_model(self.model)
        self.name = self.name or self.loaded.name
        self.max_model_len = self.max_model_len or self.loaded.model.config.max_position_embeddings
        self.scored = self._drawn = 0
        self._spelled = [self._text([i]) for i in range(self.loaded.model.config.vocab_size)]

    def __enter__(self) -> ModelServer:
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def models(self) -> dict[str, Any]:
        entry = {"id": self.name, "object": "model", "max_model_len": self.max_model_len}
        return {"object": "list", "data": [entry]}

    def chat(self, body: dict[str, Any]) -> dict[str, Any]:
        self._check(body, body.get("top_logprobs"))
        tokenizer = self.loaded.tokenizer
        text = tokenizer.apply_chat_template(
            body["messages"], tokenize=False, add_generation_prompt=True
        )
        prompt = tokenizer(text, add_special_tokens=False)["input_ids"]
        limit = body.get("max_completion_tokens", body.get("max_tokens"))
        choices: list[dict[str, Any]] = []
        written = 0
        for index in range(body.get("n", 1)):
            made = self._write(body, prompt, limit, index)
            written += len(made.token_ids)
            choice: dict[str, Any] = {
                "index": index,
                "message": {"role": "assistant", "content": made.text},
                "finish_reason": made.finish_reason,
                "logprobs": None,
            }
            if body.get("logprobs"):
                choice["logprobs"] = {"content": self._content(body, prompt, made)}
            if body.get("return_token_ids") and self.token_ids:
                choice["token_ids"] = list(made.token_ids)
            choices.append(choice)
        answer = self._answer("chat.completion", choices, len(prompt), written)
        if body.get("return_token_ids") and self.token_ids:
            answer["prompt_token_ids"] = prompt
        return answer

    def by_token(self, text: str, ended: str, choice: dict[str, Any]) -> list[dict[str, Any]]:
        """What each event of a stream holds where log-probs come: first a role, then a token or
        two, and at the end why it ended.
        """
        entries, ids = choice["logprobs"]["content"], choice.get("token_ids")
        parts: list[dict[str, Any]] = [{"delta": {"role": "assistant", "content": ""}}]
        done = 0
        for at in range(0, len(entries), 2):
            stop = min(at + 2, len(entries))
            until = len(text) if stop == len(entries) else self._share(text, stop, len(entries))
            part: dict[str, Any] = {"delta": {"content": text[done:until]}}
            part["logprobs"] = {"content": entries[at:stop]}
            if ids is not None:
                part["token_ids"] = ids[at:stop]
            parts.append(part)
            done = until
        parts[-1]["finish_reason"] = ended
        return parts

    @staticmethod
    def _share(text: str, stop: int, count: int) -> int:
        """Where the text of the first tokens ends, roughly: servers hold some of it back."""
        return len(text) * stop // count

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        wanted: int | None = body.get("logprobs")
        listed: int | None = body.get("prompt_logprobs") if self.prompt_logprobs else None
        self._check(body, wanted, listed)
        prompt = self._prompt(body["prompt"])
        made = self._write(body, prompt, body.get("max_tokens", 16), 0)
        echo = bool(body.get("echo")) and self.echo
        choice: dict[str, Any] = {
            "index": 0,
            "text": (self._text(prompt) if echo else "") + made.text,
            "finish_reason": made.finish_reason,
            "logprobs": None,
        }
        if listed is not None or (echo and wanted is not None):
            self.scored += 1
            if self.broken_after is not None and self.scored > self.broken_after:
                raise Refused(500, "the model is gone")
        if listed is not None:
            choice["prompt_logprobs"] = self._prompt_logprobs(prompt, listed)
        if wanted is not None:
            choice["logprobs"] = self._logprobs(body, prompt, made, wanted, echo)
        if body.get("return_token_ids"):
            choice["token_ids"], choice["prompt_token_ids"] = list(made.token_ids), prompt
        return self._answer("text_completion", [choice], len(prompt), len(made.token_ids))

    def _check(self, body: dict[str, Any], *listed: int | None) -> None:
        if body.get("model") != self.name:
            raise Refused(404, f"The model `{body.get('model')}` does not exist.")
        most = max((k for k in listed if k is not None), default=0)
        if self.max_logprobs is not None and most > self.max_logprobs:
            raise Refused(400, f"Requested logprobs of {most}, at most {self.max_logprobs}.")

    def _prompt(self, prompt: Any) -> list[int]:
        if isinstance(prompt, str):
            return self.loaded.tokenizer(prompt)["input_ids"]
        width = self.loaded.model.config.vocab_size
        if not prompt or not all(isinstance(i, int) and 0 <= i < width for i in prompt):
            raise Refused(400, "prompt must be text or a list of token ids")
        return list(prompt)

    def _write(
        self, body: dict[str, Any], prompt: Sequence[int], limit: int | None, index: int
    ) -> Written:
        assert self.max_model_len is not None
        room = self.max_model_len - len(prompt)
        if room < 1 or (limit is not None and limit > room):
            raise Refused(
                400,
                f"This model's maximum context length is {self.max_model_len} tokens. However, you "
                f"requested {limit or 1} output tokens and your prompt contains {len(prompt)}.",
            )
        if limit == 0:
            return Written((), "", "length")
        self._drawn += 1
        key = f"{body.get('seed', self._drawn)}:{index}"
        sampling = Sampling(
            temperature=body.get("temperature", 1.0),
            top_p=body.get("top_p", 1.0),
            top_k=body.get("top_k"),
            presence_penalty=body.get("presence_penalty", 0.0),
        )
        with _ONE_AT_A_TIME:
            return decode(self.loaded, [Ask(key, tuple(prompt), limit or room)], sampling)[0]

    def _table(self, ids: Sequence[int]) -> np.ndarray[Any, Any]:
        """[L, V] log-probs of what comes behind each of the ids, as they are reported."""
        import torch

        with _ONE_AT_A_TIME, torch.inference_mode():
            logits = self.loaded.model(torch.tensor([list(ids)], device=self.loaded.device)).logits
        found = torch.log_softmax(logits[0].double(), dim=-1).float().cpu()
        if self.rounded == "bf16":
            found = found.bfloat16().float()
        elif isinstance(self.rounded, int):
            found = torch.round(found.double(), decimals=self.rounded)
        return found.numpy().astype(np.float64)

    def _ranked(self, row: np.ndarray[Any, Any], own: int, k: int) -> list[int]:
        """The token itself, then the K most likely ones."""
        k = len(row) if k < 0 else k
        top = np.argsort(-row, kind="stable")[:k].tolist()
        return [own, *(i for i in top if i != own)]

    def _prompt_rows(self, ids: Sequence[int]) -> list[np.ndarray[Any, Any] | None]:
        """The distribution that each prompt token is said to be drawn from."""
        table = self._table(ids)
        places = [index - 1 - self.late for index in range(len(ids))]
        return [table[at] if 0 <= at < len(ids) else None for at in places]

    def _prompt_logprobs(self, ids: Sequence[int], k: int) -> list[dict[str, Any] | None]:
        rows = self._prompt_rows(ids)
        entries: list[dict[str, Any] | None] = []
        for index, row in enumerate(rows):
            if row is None:
                entries.append(None)
                continue
            # A shifted list is shifted as a whole: it tells of another place's token.
            own = ids[max(0, min(len(ids) - 1, index - self.late))]
            listed = self._ranked(row, own, k)
            # As in vLLM, equal tokens all have the last rank that any of them could have.
            ranks = len(row) - np.searchsorted(np.sort(row), row[listed])
            entries.append(
                {
                    str(i): {
                        "logprob": _plain(row[i]),
                        "rank": int(rank),
                        "decoded_token": self._spelled[i],
                    }
                    for i, rank in zip(listed, ranks, strict=True)
                }
            )
        return entries

    def _logprobs(
        self, body: dict[str, Any], prompt: list[int], made: Written, k: int, echo: bool
    ) -> dict[str, Any]:
        named = bool(body.get("return_tokens_as_token_ids")) and self.token_id_keys
        ids = [*prompt, *made.token_ids]
        table = self._table(ids)
        rows: list[np.ndarray[Any, Any] | None] = [table[at - 1] for at in range(1, len(ids))]
        rows.insert(0, None)
        if echo:
            rows[: len(prompt)] = self._prompt_rows(prompt)
        else:
            ids, rows = ids[len(prompt) :], rows[len(prompt) :]
        moved = len(prompt) if echo else 0
        tokens, own_logprobs, top, offsets = [], [], [], []
        for index, (token, row) in enumerate(zip(ids, rows, strict=True)):
            offsets.append(sum(map(len, tokens)))
            tokens.append(self._name(token, named))
            if row is None:
                own_logprobs.append(None)
                top.append(None)
                continue
            late = self.late if index < moved else 0
            own = ids[max(0, min(len(ids) - 1, index - late))]
            own_logprobs.append(_plain(row[own]))
            top.append({self._name(i, named): _plain(row[i]) for i in self._ranked(row, own, k)})
        return {
            "tokens": tokens,
            "token_logprobs": own_logprobs,
            "top_logprobs": top,
            "text_offset": offsets,
        }

    def _content(
        self, body: dict[str, Any], prompt: list[int], made: Written
    ) -> list[dict[str, Any]]:
        named = bool(body.get("return_tokens_as_token_ids")) and self.token_id_keys
        rows = self._table([*prompt, *made.token_ids])[len(prompt) - 1 : -1]
        k = body.get("top_logprobs") or 0

        def entry(row: np.ndarray[Any, Any], i: int) -> dict[str, Any]:
            name = self._name(i, named)
            return {"token": name, "logprob": _plain(row[i]), "bytes": list(name.encode())}

        return [
            {
                **entry(row, token),
                "top_logprobs": [entry(row, i) for i in np.argsort(-row)[:k].tolist()],
            }
            for token, row in zip(made.token_ids, rows, strict=True)
        ]

    def _name(self, token: int, named: bool) -> str:
        return f"token_id:{token}" if named else self._spelled[token]

    def _text(self, ids: Sequence[int]) -> str:
        return self.loaded.tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)

    def _answer(
        self, kind: str, choices: list[dict[str, Any]], read: int, written: int
    ) -> dict[str, Any]:
        usage = {"prompt_tokens": read, "completion_tokens": written}
        usage["total_tokens"] = read + written
        return {
            "id": f"answer-{len(self.asked)}",
            "object": kind,
            "created": 0,
            "model": self.name,
            "choices": choices,
            "usage": usage,
        }


def _plain(logprob: float) -> float:
    """JSON knows no infinity; vLLM writes this number in its place."""
    return -9999.0 if math.isinf(logprob) else float(logprob)


def _handler(server: ModelServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path == "/v1/models":
                self.reply(200, server.models())
            else:
                self.reply(404, _error(404, "Not Found"))

        def do_POST(self) -> None:
            routes = {"/v1/chat/completions": server.chat, "/v1/completions": server.complete}
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path not in routes:
                return self.reply(404, _error(404, "Not Found"))
            body = json.loads(raw)
            server.asked.append((self.path, body))
            try:
                answer = routes[self.path](body)
            except Refused as refused:
                return self.reply(refused.status, _error(refused.status, str(refused)))
            if body.get("stream"):
                return self.stream(answer)
            return self.reply(200, answer)

        def stream(self, answer: dict[str, Any]) -> None:
            """A chat completion as events, a few characters each; what is of tokens comes whole."""
            (choice,) = answer["choices"]
            text, ended = choice.pop("message")["content"], choice.pop("finish_reason")
            if choice["logprobs"] is None:
                texts = [text[at : at + 5] for at in range(0, len(text), 5)]
                parts = [{"delta": {"content": part}, "finish_reason": None} for part in texts]
                parts.append({"delta": {}, "finish_reason": ended})
                parts[0] |= choice
            else:
                parts = server.by_token(text, ended, choice)
            chunks: list[dict[str, Any]] = [{"choices": [{"index": 0, **part}]} for part in parts]
            if "prompt_token_ids" in answer:
                chunks[0]["prompt_token_ids"] = answer["prompt_token_ids"]
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            try:
                for chunk in (*chunks, {"choices": [], "usage": answer["usage"]}):
                    self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
                    server.sent += 1
                    time.sleep(server.pause)
                self.wfile.write(b"data: [DONE]\n\n")
            except OSError:
                server.left.set()

        def reply(self, status: int, content: dict[str, Any]) -> None:
            data = json.dumps(content, allow_nan=False).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Tests are quiet."""

    return Handler


def _error(status: int, message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "code": status}}
