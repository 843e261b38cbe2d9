"""Benchmarks by name: embedded, from a file, or from the hub with a way out where it fails."""

from __future__ import annotations

import importlib.util
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from divtok.config.run import load_config
from divtok.errors import DataError, MissingExtraError, UsageError
from divtok.problems import benchmarks
from divtok.problems.benchmark import BENCHMARKS, load_benchmark, problems_digest
from divtok.problems.sources import HubSource
from divtok.protocols.protocol import PROTOCOLS
from divtok.records import Problem
from divtok.stages.generate import prepare
from divtok.store.run import Run

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "benchmarks"
HUB = {"math500", "amc23", "aime24", "aime25", "hmmt25", "hmmt26", "math-train"}


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As HF_HUB_OFFLINE=1 in the environment, which is read when the libraries are imported."""
    import datasets.config
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[tuple[Any, ...]]]:
    """Puts rows, or an error to raise, behind the hub; gives the list of what is asked for."""
    import datasets

    def install(answer: Any) -> list[tuple[Any, ...]]:
        asked: list[tuple[Any, ...]] = []

        def load_dataset(path: str, name: str | None, *, split: str, revision: str | None) -> Any:
            asked.append((path, name, split, revision))
            if isinstance(answer, Exception):
                raise answer
            return answer

        monkeypatch.setattr(datasets, "load_dataset", load_dataset)
        return asked

    return install


def test_the_hub_benchmarks_are_those_of_the_paper_and_others_that_many_report() -> None:
    found = {
        b.name: (b.source.dataset, b.source.split, b.source.fields.question, b.source.count)
        for b in BENCHMARKS
        if isinstance(b.source, HubSource)
    }
    assert found == {
        "math500": ("HuggingFaceH4/MATH-500", "test", "problem", 500),
        "amc23": ("math-ai/amc23", "test", "question", 40),
        "aime24": ("HuggingFaceH4/aime_2024", "train", "problem", 30),
        "aime25": ("MathArena/aime_2025", "train", "problem", 30),
        "hmmt25": ("MathArena/hmmt_feb_2025", "train", "problem", 30),
        "hmmt26": ("MathArena/hmmt_feb_2026", "train", "problem", 33),
        "math-train": ("nlile/hendrycks-MATH-benchmark", "train", "problem", 7_500),
        "gsm8k": ("openai/gsm8k", "test", "question", 1_319),
        "math": ("DigitalLearningGmbH/MATH-lighteval", "test", "problem", 5_000),
        "mmlu-pro": ("TIGER-Lab/MMLU-Pro", "test", "question", 12_032),
        "gpqa": ("Idavidrein/gpqa", "train", "Question", 198),
        "bbh-boolean": ("SaylorTwift/bbh", "test", "input", 250),
        "bbh-date": ("SaylorTwift/bbh", "test", "input", 250),
        "bbh-navigate": ("SaylorTwift/bbh", "test", "input", 250),
        "bbh-sorting": ("SaylorTwift/bbh", "test", "input", 250),
    }


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("arith-easy", "9b643bcb7ef0bd05"),
        ("arith-medium", "4130a47ecdb47a5c"),
        ("arith-hard", "f45bb50fef1ae9b9"),
        ("arith-contest", "82f64a09974c1441"),
        ("arith-fit", "a31abe3d314546d0"),
    ],
)
def test_the_embedded_benchmarks_never_change(name: str, digest: str) -> None:
    """Stored runs know them by these digests, as they were before benchmarks were YAML files."""
    problems = load_benchmark(name)
    assert len(problems) == BENCHMARKS.get(name).source.count == 200
    assert problems_digest(problems) == digest


def test_benchmarks_are_maths_unless_they_say_otherwise() -> None:
    ways = {b.name: (b.protocol, b.grader or PROTOCOLS.get(b.protocol).grader) for b in BENCHMARKS}
    letters, texts = ("letter", "choice"), ("text", "text")
    assert {name: w for name, w in ways.items() if w != ("cot", "maths")} == {
        "gsm8k": ("hashes", "maths"),
        **dict.fromkeys(("mmlu-pro", "gpqa", "bbh-date"), letters),
        **dict.fromkeys(("bbh-boolean", "bbh-navigate", "bbh-sorting"), texts),
    }


@pytest.mark.parametrize("path", sorted(Path(benchmarks.__path__[0]).glob("*.yaml")), ids=str)
def test_a_benchmark_file_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 25


def test_a_gated_dataset_says_how_to_get_in(offline: None) -> None:
    with pytest.raises(DataError, match=r"Accept its terms at https.*Idavidrein/gpqa.*HF_TOKEN"):
        load_benchmark("gpqa")


def test_rows_of_the_hub_become_questions_with_options(serve: Callable[..., Any]) -> None:
    serve([{"question_id": 70, "question": "Q?", "options": ["x", "y", "z"], "answer": "B"}])
    assert load_benchmark("mmlu-pro") == [Problem("70", "mmlu-pro", "Q?\n\nA. x\nB. y\nC. z", "B")]
    right, wrong = "right", ["wrong 1", "wrong 2", "wrong 3"]
    rows = [
        {
            "Question": f"Q {i}?",
            "Correct Answer": right + "\n",
            **{f"Incorrect Answer {n + 1}": text for n, text in enumerate(wrong)},
        }
        for i in range(40)
    ]
    serve(rows)
    problems = load_benchmark("gpqa")
    for problem in problems:
        lines = problem.question.splitlines()[2:]
        assert sorted(line[3:] for line in lines) == [right, *wrong]
        assert [line[0] for line in lines] == list("ABCD")
        assert f"{problem.answer}. {right}" in lines
    assert {p.answer for p in problems} == set("ABCD")  # not always in one place
    assert load_benchmark("gpqa") == problems


@pytest.mark.parametrize("name", sorted(HUB))
def test_a_hub_benchmark_off_line_fails_at_once_with_the_way_out(name: str, offline: None) -> None:
    started = time.monotonic()
    with pytest.raises(DataError) as caught:
        load_benchmark(name)
    assert time.monotonic() - started < 5
    assert caught.value.what.startswith(f"Benchmark '{name}' cannot be fetched from the hub")
    assert "OfflineModeIsEnabled" in caught.value.what
    assert caught.value.next_step == (
        f"Give a local JSONL file with id, problem and answer instead: benchmark_files.{name}=PATH"
    )


def hub_failures() -> list[Exception]:
    """What the real libraries raise: no network, no such dataset, a broken download."""
    from datasets.exceptions import DatasetGenerationError, DatasetNotFoundError
    from huggingface_hub.errors import HTTPError  # pyright: ignore[reportPrivateImportUsage]

    return [
        ConnectionError("Couldn't reach 'x/y' on the Hub (LocalEntryNotFoundError)"),
        DatasetNotFoundError("Dataset 'x/y' doesn't exist on the Hub or cannot be accessed."),
        DatasetGenerationError("An error occurred while generating the dataset"),
        HTTPError("Server disconnected without sending a response."),
        FileNotFoundError("Couldn't find any data file"),
        ValueError('Unknown split "test".'),
        RuntimeError("Dataset scripts are no longer supported"),
        TimeoutError(),
    ]


@pytest.mark.parametrize("error", hub_failures(), ids=lambda error: type(error).__name__)
def test_every_failure_of_the_hub_gives_the_way_out(serve: Any, error: Exception) -> None:
    serve(error)
    with pytest.raises(DataError, match=r"'math500'.*benchmark_files\.math500=PATH") as caught:
        load_benchmark("math500")
    assert (str(error) or type(error).__name__) in caught.value.what
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is error


def test_hub_rows_become_problems(serve: Any) -> None:
    asked = serve([{"question": "One?", "answer": 1.0}, {"question": "Two?", "answer": "2"}])
    assert load_benchmark("amc23") == [
        Problem("amc23-0000", "amc23", "One?", "1.0"),
        Problem("amc23-0001", "amc23", "Two?", "2"),
    ]
    pinned = "80815d37005feb82cd7f8fbc6901d5d3eff43057"
    assert asked == [("math-ai/amc23", None, "test", pinned)]


def test_the_fitting_set_is_the_training_problems_alone(serve: Any) -> None:
    def row(number: int, identity: Any) -> dict[str, Any]:
        return {"problem": f"{number}?", "answer": str(number), "unique_id": identity}

    asked = serve([row(0, "test/algebra/1.json"), row(1, "train/algebra/9.json"), row(2, "train/")])
    found = load_benchmark("math-train")
    # A row keeps the number that it has in the whole dataset.
    assert [(p.id, p.question) for p in found] == [
        ("math-train-0001", "1?"),
        ("math-train-0002", "2?"),
    ]
    ((dataset, _, split, revision),) = asked
    assert (dataset, split) == ("nlile/hendrycks-MATH-benchmark", "train")
    assert revision is not None
    assert len(revision) == 40
    serve([row(0, "train/1"), row(1, None)])
    with pytest.raises(DataError, match=r"row 1: 'unique_id' is missing, or no text.*'only'"):
        load_benchmark("math-train")
    serve([row(0, "test/1"), row(1, "a train/")])
    with pytest.raises(
        DataError, match=r"None of the 2 rows of 'math-train' has unique_id 'train/"
    ):
        load_benchmark("math-train")


@pytest.mark.parametrize("gold", [None, float("nan"), " "])
def test_a_hub_row_without_a_gold_answer_has_none(serve: Any, gold: Any) -> None:
    serve([{"problem": "One?", "answer": gold}])
    assert load_benchmark("math500")[0].answer is None


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "Two?", "answer": "2"}, "'problem' is missing"),
        ({"problem": None, "answer": "2"}, "'problem' is missing"),
        ({"problem": "Two?"}, "'answer' is missing"),
        ({"problem": "a\x00b", "answer": "2"}, "'problem' holds a NUL"),
    ],
)
def test_a_broken_hub_row_is_named(serve: Any, row: dict[str, Any], message: str) -> None:
    serve([{"problem": "One?", "answer": "1"}, row])
    with pytest.raises(DataError, match=rf"HuggingFaceH4/MATH-500, row 1: {message}"):
        load_benchmark("math500")


def test_an_empty_hub_dataset_is_refused(serve: Any) -> None:
    serve([])
    with pytest.raises(DataError, match="Benchmark 'math500' is empty"):
        load_benchmark("math500")


def test_without_the_datasets_package_the_pip_line_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    find_spec = importlib.util.find_spec

    def without_datasets(name: str) -> Any:
        return None if name == "datasets" else find_spec(name)

    monkeypatch.setattr(importlib.util, "find_spec", without_datasets)
    with pytest.raises(MissingExtraError, match=r"'math500'.*pip install 'divtok\[hub\]'"):
        load_benchmark("math500")


def test_a_file_stands_in_for_any_benchmark(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps({"id": "a", "problem": "One?", "answer": "1"}))
    expected = [Problem("a", "math500", "One?", "1")]
    assert load_benchmark("math500", file=path) == expected
    assert load_benchmark("not-registered", file=path)[0].benchmark == "not-registered"


def test_a_missing_file_is_not_replaced_by_the_hub(tmp_path: Path, serve: Any) -> None:
    asked = serve([{"problem": "One?", "answer": "1"}])
    with pytest.raises(DataError, match=r"absent\.jsonl cannot be read"):
        load_benchmark("math500", file=tmp_path / "absent.jsonl")
    assert asked == []


def test_limit_takes_the_first_problems() -> None:
    everything = load_benchmark("arith-easy")
    assert load_benchmark("arith-easy", limit=7) == everything[:7]
    assert load_benchmark("arith-easy", limit=10_000) == everything


def test_an_unknown_benchmark_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"Unknown benchmark 'math50'\. Did you mean 'math500'"):
        load_benchmark("math50")


def test_the_digest_sees_every_change_but_not_the_container() -> None:
    problems = [Problem("a", "x", "One?", "1"), Problem("b", "x", "Two?", None)]
    changed = [
        problems[::-1],
        problems[:1],
        [Problem("a", "x", "One?", "2"), problems[1]],
        [Problem("a", "x", "One!", "1"), problems[1]],
        [Problem("c", "x", "One?", "1"), problems[1]],
        [Problem("a", "y", "One?", "1"), problems[1]],
        [problems[0], Problem("b", "x", "Two?", "None")],
    ]
    digests = [problems_digest(rows) for rows in [problems, *changed]]
    assert len(set(digests)) == len(digests)
    assert problems_digest(iter(problems)) == digests[0]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the data folder is not here")
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("math500", 500),
        ("amc23", 40),
        ("aime24", 30),
        ("aime25", 30),
        ("hmmt25", 30),
        ("hmmt26", 33),
    ],
)
def test_the_real_benchmarks_are_read_whole(name: str, count: int) -> None:
    problems = load_benchmark(name, file=SHARED / f"{name}.jsonl")
    assert len(problems) == count
    assert all(problem.answer for problem in problems)


COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Cached(list[dict[str, Any]]):
    """Rows as the hub library gives them: it names the folder of its cache by the commit."""

    cache_files = [{"filename": f"/cache/o___d/default/0.0.0/{COMMIT}/d-test.arrow"}]  # noqa: RUF012


def test_every_hub_benchmark_is_pinned_to_a_commit() -> None:
    for benchmark in BENCHMARKS:
        if isinstance(benchmark.source, HubSource):
            assert re.fullmatch("[0-9a-f]{40}", benchmark.source.revision or ""), benchmark.name
            assert benchmark.source.describe().endswith(
                f"revision {benchmark.source.revision[:12]}"
            )


def test_a_dataset_says_where_it_is_not_pinned_and_which_commit_came(serve: Any) -> None:
    source = HubSource("o/d", "test")
    assert source.describe() == "hub: o/d, revision not pinned"
    before = {"dataset": "o/d", "revision": "revision not pinned"}
    assert source.origin() == before
    serve([{"problem": "1?", "answer": "1"}])
    source.load("b")
    assert source.origin() == before  # nothing is told, and nothing is guessed
    serve(Cached([{"problem": "1?", "answer": "1"}]))
    source.load("b")
    assert source.origin() == {**before, "commit": COMMIT}


def test_a_run_records_the_commit_of_its_dataset(
    serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("summary: Mine.\nhub: {dataset: o/mine, split: test}\n")
    serve(Cached([{"problem": "1 + 1 = ?", "answer": "2"}]))
    config = load_config(None, ["benchmarks=[mine]", f"benchmark_files.mine={file}", "samples=1"])
    run = Run.create_or_open(tmp_path / "run")
    with run.lock():
        prepare(run, config)
        known = {"dataset": "o/mine", "revision": "revision not pinned", "commit": COMMIT}
        assert run.makers()["problems"] == [{"benchmark": "mine", **known}]
        prepare(run, config)
        assert len(run.makers()["problems"]) == 1
