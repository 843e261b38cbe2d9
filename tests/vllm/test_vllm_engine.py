"""Generating with vLLM's offline engine, beside the transformers engine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from divtok.errors import ModelError, UsageError
from divtok.generate.engines.vllm import load_vllm
from divtok.generate.jobs import Job, generate_batch
from divtok.models.load import load_model, load_tokenizer
from divtok.problems.benchmark import load_benchmark
from divtok.records import Sampling

MODEL = "divtok/tiny-0.5m"
GREEDY = Sampling(temperature=0.0, max_length=768)
SAMPLED = Sampling(temperature=1.0, top_p=1.0, max_length=768)
CUT = Sampling(temperature=0.7, top_p=0.8, top_k=20, presence_penalty=1.0, max_length=120)
PADDING = 40


def jobs(sampling: Sampling, problems: int, samples: int = 1) -> list[Job]:
    return [
        Job(problem, sample, MODEL, "cot", sampling)
        for problem in load_benchmark("arith-easy", limit=problems)
        for sample in range(samples)
    ]


@pytest.fixture(scope="module")
def made() -> Any:
    """All of one load: greedy, sampled, the same in another order, cut short, and many at once."""
    with load_vllm(MODEL, dtype="float32", max_length=768) as engine:
        todo = jobs(SAMPLED, 6, 4)
        return {
            "greedy": engine.generate_batch(jobs(GREEDY, 12)),
            "sampled": engine.generate_batch(todo),
            "reversed": engine.generate_batch(todo[::-1])[::-1],
            "cut": engine.generate_batch(jobs(CUT, 6)),
            "many": engine.generate_batch(jobs(CUT, 100)),
        }


def test_greedy_tokens_are_those_of_the_transformers_engine(made: Any, measure: Any) -> None:
    loaded = load_model(MODEL, dtype="float32", device="cpu")
    expected = generate_batch(loaded, jobs(GREEDY, 12))
    same = sum(a == b for a, b in zip(made["greedy"], expected, strict=True))
    measure(f"greedy responses of vLLM and transformers, float32: {same} of 12 are equal")
    # Rounding may turn a token where two are about equally likely.
    assert same >= 11
    assert {t.finish_reason for t in made["greedy"]} == {"stop"}


def test_samples_differ_and_can_be_had_again(made: Any, measure: Any) -> None:
    sampled, again = made["sampled"], made["reversed"]
    assert len({t.token_ids for t in sampled}) == len(sampled)
    same = sum(a == b for a, b in zip(sampled, again, strict=True))
    measure(f"samples drawn again in another order: {same} of {len(sampled)} are equal")
    assert same >= len(sampled) - 2


def test_a_response_ends_at_its_limit_or_with_one_end_token(made: Any) -> None:
    end = load_tokenizer(MODEL).eos_token_id
    both = [*made["sampled"], *made["cut"]]
    assert {t.finish_reason for t in both} == {"stop", "length"}, "both ends must be tried"
    for trajectory in both:
        total = len(trajectory.prompt_ids) + len(trajectory.token_ids)
        assert trajectory.token_ids.count(end) == (trajectory.finish_reason == "stop")
        if trajectory.finish_reason == "stop":
            assert trajectory.token_ids[-1] == end
        else:
            assert total == trajectory.sampling.max_length


def test_more_prompts_than_vllm_reads_at_once(made: Any) -> None:
    assert sum(len(t.prompt_ids) for t in made["many"]) > 8000
    same = sum(a == b for a, b in zip(made["many"], made["cut"], strict=False))
    assert same >= len(made["cut"]) - 1  # rounding may turn a token


def save_padded_model(folder: Path) -> int:
    """A model that gives nearly all probability to ids without a token; how many tokens it has."""
    import torch

    loaded = load_model(MODEL, dtype="float32", device="cpu")
    model, width = loaded.model, loaded.tokenizer_width
    model.config.tie_word_embeddings = False
    model.resize_token_embeddings(width + PADDING)
    with torch.no_grad():
        head = torch.nn.Linear(model.config.hidden_size, width + PADDING, bias=False)
        head.weight[:width] = model.get_input_embeddings().weight[:width]
        head.weight[width:] = 3.0 * head.weight[: PADDING * 4 : 4]
        model.lm_head = head
    model.save_pretrained(folder)
    loaded.tokenizer.save_pretrained(folder)
    return width


def test_ids_without_a_token_are_never_sampled(tmp_path: Path) -> None:
    width = save_padded_model(tmp_path)
    loaded = load_model(str(tmp_path), dtype="float32", device="cpu")
    import torch

    with torch.inference_mode():
        logits = loaded.model(torch.tensor([list(range(3, 60))])).logits
    assert bool((logits.argmax(dim=-1) >= width).any()), "or nothing would be tried here"
    with load_vllm(str(tmp_path), dtype="float32", max_length=300) as engine:
        sampling = Sampling(temperature=1.0, top_p=1.0, max_length=300)
        greedy = Sampling(temperature=0.0, max_length=300)
        written = engine.generate_batch(jobs(sampling, 4, 4))
        most_likely = engine.generate_batch(jobs(greedy, 4))
    assert max(max(t.token_ids) for t in (*written, *most_likely)) < width
    assert most_likely == generate_batch(loaded, jobs(greedy, 4))


def test_what_cannot_work_is_refused() -> None:
    with pytest.raises(UsageError, match="CPU build"):
        load_vllm(MODEL, tensor_parallel=2, max_length=768)
    with pytest.raises(ModelError, match=r"max_model_len|max_position_embeddings"):
        load_vllm(MODEL, dtype="float32", max_length=4096)


def test_a_run_of_the_command_line(tmp_path: Path) -> None:
    """Generates with vLLM and traces in the same process; standard output is divtok's alone."""
    run = tmp_path / "run"
    command = [sys.executable, "-m", "divtok", "run", "--out", str(run), "--limit", "2"]
    keys = ["generate.engine=vllm", f"generators=[{MODEL}]", "benchmarks=[arith-easy]", "samples=2"]
    done = subprocess.run(
        [*command, *keys], capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "vllm" not in done.stdout.lower().replace("generate.engine=vllm", "")
