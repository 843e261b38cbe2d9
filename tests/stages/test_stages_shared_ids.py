"""A generator with a few more tokens than its readers, as Qwen3 has beside Qwen2.5: ids are kept.

The models are the embedded ones. The generator's tokenizer knows four more tokens behind the
others; the readers' template puts a system prompt of its own where a question has none.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import divtok
from divtok.config.run import RunConfig, load_config
from divtok.evidence.kinds.chain import CHAINS
from divtok.models.load import load_tokenizer
from divtok.protocols.encode import prompt_ids, response_ids
from divtok.records import Trace, Trajectory
from divtok.stages import trace as tracing
from divtok.stages.readers import as_read_by, known_ids
from divtok.stages.run import run_stages
from divtok.store.notes import kept_notes
from divtok.store.run import Run
from divtok.trace.pair import Pair, load_pair

FURTHER = ("<tool_response>", "</tool_response>", "<think>", "</think>")
DEFAULT_SYSTEM = "You are a helpful reader."
TINY = Path(divtok.__file__).parent / "tiny"


@dataclass(frozen=True)
class Models:
    generator: str
    p: str
    q: str


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    folder = tmp_path_factory.mktemp("models")
    for name, source in (("generator", "tiny-0.5m"), ("p", "tiny-0.9m"), ("q", "tiny-0.3m")):
        shutil.copytree(TINY / source, folder / name)
    _with_further_tokens(folder / "generator")
    for reader in ("p", "q"):
        _with_default_system(folder / reader)
    return Models(*(str(folder / name) for name in ("generator", "p", "q")))


def _with_further_tokens(folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    tokenizer = load_tokenizer(str(folder))
    assert tokenizer.add_tokens(list(FURTHER)) == 4
    model = AutoModelForCausalLM.from_pretrained(folder)
    model.resize_token_embeddings(len(tokenizer))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _with_default_system(folder: Path) -> None:
    """As Qwen2.5's template does."""
    tokenizer = load_tokenizer(str(folder))
    system = f"<|im_start|>system\n{DEFAULT_SYSTEM}<|im_end|>\n"
    before = "{% if messages[0]['role'] != 'system' %}{{ '" + system.replace("\n", "\\n") + "' }}"
    tokenizer.chat_template = before + "{% endif %}" + tokenizer.chat_template
    tokenizer.save_pretrained(folder)
    (folder / "chat_template.jinja").write_text(tokenizer.chat_template)


def config_of(models: Models, *overrides: str) -> RunConfig:
    given = (
        *("family=null", f"generators=['{models.generator}']", "benchmarks=['arith-easy']"),
        *(f"trace.reader={models.p}", f"trace.auxiliary={models.q}", "score.theta=0.05"),
        *("limit=4", "samples=2", "sampling.max_length=400", "evaluate.resamples=20"),
    )
    return load_config(None, [*given, *overrides])


def read_as_text(run: Run, config: RunConfig, rows: Sequence[Trajectory]) -> list[Trajectory]:
    """As divtok read such rows before: in tokens made of their text."""
    tokenizer = load_tokenizer(config.pair_for(config.generator_presets()[0])[0])
    questions = {(p.benchmark, p.id): p.question for p in run.problems.read()}
    return [
        replace(
            row,
            prompt_ids=prompt_ids(
                tokenizer, questions[row.benchmark, row.problem_id], protocol=row.protocol
            ),
            token_ids=response_ids(tokenizer, row.text),
            retokenized=True,
        )
        for row in rows
    ]


def assert_read(trace: Trace, row: Trajectory, pair: Pair) -> None:
    """The trace is that of these very ids behind this very prompt."""
    alone = pair.trace_ids(prompt_ids=row.prompt_ids, token_ids=row.token_ids, text=row.text)
    assert len(trace) == len(row.token_ids)
    np.testing.assert_allclose(trace.logprob_p, alone.logprob_p, atol=1e-4)
    np.testing.assert_allclose(trace.jsd_bits, alone.jsd_bits, atol=1e-4)
    assert trace.turn_end == alone.turn_end


@pytest.mark.parametrize("protocol", ["cot", "verbalized"])
def test_a_whole_run_reads_the_generators_own_ids(
    tmp_path: Path, models: Models, protocol: str
) -> None:
    config = config_of(models, f"protocol={protocol}")
    run = Run.create_or_open(tmp_path / "run")
    run_stages(run, config)
    rows = {row.key: row for row in run.trajectories.read()}
    traces = run.traces.read()
    assert len(traces) == len(rows) == 8
    assert not any(trace.retokenized for trace in traces)
    pair = load_pair(models.p, models.q)
    tokenizer = load_tokenizer(models.p)
    ended = 0
    for trace in traces:
        row = rows[trace.key]
        assert_read(trace, row, pair)
        if row.finish_reason == "stop":
            ended += 1
            assert row.token_ids[-1] == tokenizer.eos_token_id
            assert trace.turn_end == len(trace) - 1
        assert DEFAULT_SYSTEM not in tokenizer.decode(row.prompt_ids)
    assert ended > 0
    assert not any("hold a token" in note for note in kept_notes(run))
    if protocol == "verbalized":
        # What the readers' own template would have put in front of the question.
        (old, *_) = read_as_text(run, config, list(rows.values()))
        assert DEFAULT_SYSTEM in tokenizer.decode(old.prompt_ids)


def test_a_response_beyond_the_shared_range_is_tokenised_anew_alone_and_counted(
    tmp_path: Path, models: Models, capsys: pytest.CaptureFixture[str]
) -> None:
    config = config_of(models)
    run = Run.create_or_open(tmp_path / "run")
    run_stages(run, config)
    own = load_tokenizer(models.generator)
    think = own.convert_tokens_to_ids("<think>")
    first, second, *others = run.trajectories.read()
    thinking = replace(
        first, token_ids=(think, *first.token_ids), text=f"<think>{first.text}", key="thinking"
    )
    asked = replace(second, prompt_ids=(think, *second.prompt_ids), key="asked")
    with run.lock():
        run.trajectories.replace([thinking, asked, *others])
        run.traces.replace([])
        capsys.readouterr()
        tracing.trace(run, config)
        said = f"2 of 8 responses of {models.generator} hold a token that {models.p} has not: "
        assert said in capsys.readouterr().err
        tracing.trace(run, config)
    (note,) = [note for note in kept_notes(run) if note.startswith(said)]
    assert "tokenised anew" in note
    traces = {trace.key: trace for trace in run.traces.read()}
    assert {key for key, t in traces.items() if t.retokenized} == {"thinking", "asked"}
    pair = load_pair(models.p, models.q)
    for row in others:
        assert_read(traces[row.key], row, pair)
    for row in read_as_text(run, config, [thinking, asked]):
        assert_read(traces[row.key], row, pair)


def test_what_an_earlier_version_read_as_text_stays_so_for_more_evidence_and_pairs(
    tmp_path: Path, models: Models
) -> None:
    config = config_of(models)
    run = Run.create_or_open(tmp_path / "run")
    run_stages(run, config)
    rows = run.trajectories.read()
    pair = load_pair(models.p, models.q)
    texts = read_as_text(run, config, rows[:3])
    with run.lock():
        old = [replace(trace, retokenized=True) for trace in pair.trace_batch(texts)]
        failed = replace(
            old[2], **dict.fromkeys(("jsd_bits",), np.empty(0, np.float32)), status="failed"
        )
        run.traces.append([*old[:2], failed])
        before = {trace.key: len(trace) for trace in old}
        more = config_of(
            models,
            "score.estimators=[trace, uqac_mean]",
            f"trace.also=[{{reader: {models.p}, auxiliary: divtok/tiny-0.5m}}]",
        )
        tracing.trace(run, more, retry_failed=True)
    found = {(trace.key, trace.q): trace for trace in run.traces.read()}
    for place, row in enumerate(rows):
        for q in (models.q, "divtok/tiny-0.5m"):
            trace = found[row.key, q]
            assert trace.retokenized == (place < 2)
            assert len(trace) == (before[row.key] if place < 2 else len(row.token_ids))
    chains = {chain.key: chain for chain in run.table(CHAINS).read()}
    for row in rows:
        assert max((0, *chains[row.key].tokens)) < len(found[row.key, models.q])


def test_up_to_where_ids_are_the_readers(models: Models) -> None:
    generator, reader = load_tokenizer(models.generator), load_tokenizer(models.p)
    size = len(reader)
    assert known_ids(generator, reader) == size
    assert known_ids(reader, generator) == size  # the reader has all of a smaller generator's
    assert known_ids(reader, reader) == float("inf")  # the output layer may be wider
    assert known_ids(load_tokenizer("divtok/tiny-0.5m"), _swapped(reader)) == 0


def _swapped(reader: Any) -> Any:
    """Two tokens of the readers changed places."""

    class Swapped:
        def get_vocab(self) -> dict[str, int]:
            vocabulary: dict[str, int] = dict(reader.get_vocab())
            vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
            return vocabulary

    return Swapped()


def test_a_response_without_tokens_is_kept(models: Models) -> None:
    config = config_of(models)
    bare = Trajectory(
        *("k", "1", "b", 0, models.generator, (5, 6), (), "", "stop", "cot", None),
    )
    found = as_read_by(models.p, [bare], {("b", "1"): "What is 1 + 1?"}, config)
    assert found.rows == [bare]
    assert found.beyond == frozenset()
