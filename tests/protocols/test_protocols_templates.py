"""Chat templates run apart: as transformers renders them, within limits of time and memory."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from divtok.errors import ModelError
from divtok.models.load import load_tokenizer
from divtok.protocols import templates
from divtok.protocols.encode import prompt_ids
from divtok.protocols.templates import TemplateFailed, render

pytest.importorskip("transformers")

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is 3 + 4? \ud800 \n 'é' \"x\" <|im_end|>"},
]
TEMPLATES = {
    "chatml": "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m.content | trim }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "all the rest": "{{ bos_token }}{%- set ns = namespace(n=0) -%}{% for m in messages %}"
    "{% if loop.first %}{% continue %}{% endif %}{% set ns.n = ns.n + 1 %}"
    "{% generation %}{{ m | tojson }}{% endgeneration %}{% endfor %}{{ ns.n }}{{ dict(a=1) }}"
    "{{ tools is none }}{{ enable_thinking is defined and enable_thinking is false }}",
}
HOGS = {
    "a loop in a loop": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}"
    "{% endfor %}",
    "a doubling text": "{% set ns = namespace(s='x') %}{% for a in range(60) %}"
    "{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}",
    "a power": "{{ (9 ** (9 ** 9)) % 10 }}",
    "much output": "{% for a in range(1000) %}{{ 'x' * 20000 }}{% endfor %}",
}


@pytest.fixture
def tokenizer() -> Any:
    return load_tokenizer("divtok/tiny-0.3m")


@pytest.mark.parametrize("name", TEMPLATES)
def test_it_is_what_transformers_renders(tokenizer: Any, name: str) -> None:
    tokenizer.chat_template = TEMPLATES[name]
    options = {"add_generation_prompt": True, "enable_thinking": False}
    expected = tokenizer.apply_chat_template(MESSAGES, tokenize=False, **options)
    assert render(tokenizer, MESSAGES, **options) == expected
    assert "What is 3 + 4?" in expected


@pytest.mark.parametrize("name", HOGS)
def test_time_and_memory_are_limited(
    tokenizer: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(templates, "TIME_LIMIT", 1.0)
    good, tokenizer.chat_template = tokenizer.chat_template, HOGS[name]
    begin = time.monotonic()
    with pytest.raises(ModelError, match=r"chat template of .*(takes more than|fails: it gives)"):
        prompt_ids(tokenizer, "What is 3 + 4?")
    assert time.monotonic() - begin < 20  # of which most is the start of a process
    tokenizer.chat_template = good
    assert prompt_ids(tokenizer, "What is 3 + 4?")


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ raise_exception('no system role') }}", "^no system role$"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ messages[7].content.nothing() }}", "UndefinedError|undefined|no element"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{% for %}", "Expected"),
    ],
)
def test_a_template_that_fails_says_why(tokenizer: Any, template: str, said: str) -> None:
    tokenizer.chat_template = template
    with pytest.raises(TemplateFailed, match=said):
        render(tokenizer, MESSAGES)


def test_an_interrupt_leaves_no_reply_behind(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer.chat_template = "{{ messages[0].content }}"
    render(tokenizer, [{"role": "user", "content": "start"}])
    worker = templates._running_worker()
    process = worker._process

    class Interrupted:
        def readline(self) -> str:
            raise KeyboardInterrupt

        def close(self) -> None: ...

    with monkeypatch.context() as patch:
        patch.setattr(process, "stdout", Interrupted())
        with pytest.raises(KeyboardInterrupt):
            render(tokenizer, [{"role": "user", "content": "first"}])
    assert render(tokenizer, [{"role": "user", "content": "second"}]) == "second"


def test_threads_get_their_own_answers(tokenizer: Any) -> None:
    tokenizer.chat_template = "{{ messages[0].content }}"
    texts = [f"text {number}" for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        found = pool.map(lambda text: render(tokenizer, [{"role": "user", "content": text}]), texts)
        assert list(found) == texts


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_has_a_process_of_its_own(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    render(tokenizer, MESSAGES)
    before = templates._running_worker()
    monkeypatch.setattr(before, "parent", before.parent + 1)  # as a fork sees it
    assert not before.usable
    monkeypatch.undo()
    assert before.usable
