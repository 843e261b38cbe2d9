"""Benchmarks of one's own that are not boxed maths, each with its own protocol and grader."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from stages_samples import GENERATOR, contents, finish, write_responses

from divtok.config.run import RunConfig, load_config, read_config, resolve, to_yaml
from divtok.errors import ConfigError, StoreError, UsageError
from divtok.planning.benchmark_sizes import problem_count
from divtok.records import Verdict
from divtok.stages.choices import check_choices, named_estimators
from divtok.stages.grade import grade
from divtok.stages.run import run_stages
from divtok.store.run import Run

RIGHT, WRONG, NONE, OPEN = (
    *(Verdict.CORRECT, Verdict.INCORRECT),
    *(Verdict.UNANSWERED, Verdict.UNDETERMINED),
)

FILES = {
    "school": (
        """summary: Sums with worked solutions.
file:
  path: school.jsonl
  fields: {question: question, gold: after, marker: "####"}
protocol: hashes
""",
        [
            {
                "id": "s",
                "question": "Ada has 12 eggs and buys 6. How many?",
                "answer": "12+6\n#### 18",
            }
        ],
    ),
    "animals": (
        """summary: Four options.
file:
  path: animals.jsonl
  fields: {question: q, answer: right, wrong: [w1, w2, w3]}
protocol: letter
grader: choice
""",
        [{"id": "a", "q": "What barks?", "right": "dog", "w1": "cat", "w2": "cow", "w3": "ant"}],
    ),
    "truth": (
        """summary: Yes or no.
file:
  path: truth.jsonl
  fields: {question: input, answer: target}
protocol: text
grader: text
""",
        [{"id": "t", "input": "not ( False ) is", "target": "True"}],
    ),
}


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    for name, (text, rows) in FILES.items():
        (tmp_path / f"{name}.yaml").write_text(text)
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return config_of(tmp_path)


def config_of(folder: Path, *overrides: str) -> RunConfig:
    files = [f"benchmark_files.{name}={folder / name}.yaml" for name in FILES]
    few = ("samples=1", "sampling.max_length=200", "evaluate.resamples=20")
    names = f"benchmarks=[{', '.join(FILES)}]"
    return load_config(None, [f"generators=['{GENERATOR}']", names, *files, *few, *overrides])


def verdicts(run: Run) -> dict[str, Verdict]:
    benchmarks = {t.key: t.benchmark for t in run.trajectories.read()}
    return {benchmarks[g.key]: g.verdict for g in run.grades.read()}


def test_every_stage_over_three_kinds_of_questions(tmp_path: Path, config: RunConfig) -> None:
    check_choices(config)
    run = Run.create_or_open(tmp_path / "run")
    run_stages(run, config)
    problems = {p.benchmark: p for p in run.problems.read()}
    assert problems["school"].answer == "18"
    assert f"\n{problems['animals'].answer}. dog" in problems["animals"].question
    assert problems["truth"].answer == "True"
    protocols = {t.benchmark: t.protocol for t in run.trajectories.read()}
    assert protocols == {"school": "hashes", "animals": "letter", "truth": "text"}
    assert set(verdicts(run)) == set(FILES)
    assert len(contents(run)["traces"]) == 3
    # The same again changes nothing, whatever the benchmark's file says by then.
    before = contents(run)
    run_stages(run, config)
    assert contents(run) == before


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        (("12 + 6 = 18\n#### 18", "The answer is ({})", "Answer: true."), (RIGHT, RIGHT, RIGHT)),
        (("#### 17", "Answer: E", "So the answer is False."), (WRONG, WRONG, WRONG)),
        (("It is 18.", "A dog barks.", "It is."), (NONE, NONE, NONE)),
    ],
)
def test_right_wrong_and_unanswered(
    tmp_path: Path,
    config: RunConfig,
    says: tuple[str, str, str],
    expected: tuple[Verdict, Verdict, Verdict],
) -> None:
    from divtok.problems.benchmark import load_benchmark

    (animal,) = load_benchmark("animals", file=tmp_path / "animals.yaml")
    texts = [text.replace("{}", animal.answer or "") for text in says]
    run = write_responses(tmp_path / "run", config, texts)
    finish(run, config)
    assert verdicts(run) == dict(zip(FILES, expected, strict=True))


def test_the_ways_of_each_benchmark_are_written_out(tmp_path: Path, config: RunConfig) -> None:
    resolved = resolve(config)
    assert (resolved.protocol, resolved.grade.grader) == (None, None)
    assert resolved.benchmark_protocols == {
        "school": "hashes",
        "animals": "letter",
        "truth": "text",
    }
    assert resolved.benchmark_graders == {"school": "maths", "animals": "choice", "truth": "text"}
    (tmp_path / "truth.yaml").write_text("summary: x\nfile: {path: truth.jsonl}\nprotocol: cot")
    stored = read_config(to_yaml(resolved), source="run.yaml")
    assert stored.protocol_for("truth") == "text"
    # One for all is written as it always was.
    alike = resolve(load_config(None, ["benchmarks=[arith-easy, math500]"]))
    assert (alike.protocol, alike.benchmark_protocols) == ("cot", {})
    assert (alike.grade.grader, alike.benchmark_graders) == ("maths", {})
    forced = config_of(tmp_path, "protocol=sentence", "benchmark_protocols.truth=text")
    assert forced.protocols() == ["sentence", "text"]
    assert resolve(config_of(tmp_path, "grade.grader=exact")).grade.grader == "exact"


def test_other_ways_are_not_mixed_with_stored_rows(tmp_path: Path, config: RunConfig) -> None:
    run = write_responses(tmp_path / "run", config, ["#### 18"])
    finish(run, config)
    section = {"animals": "choice", "school": "maths", "truth": "text"}
    assert (run.manifest() or {})["grade"] == {"grader": section}
    with run.lock():
        with pytest.raises(StoreError, match=r"grade\.grader.*truth.*exact"):
            grade(run, config_of(tmp_path, "benchmark_graders.truth=exact"))
        assert (run.manifest() or {})["grade"] == {"grader": section}
        grade(run, config)
    with pytest.raises(StoreError, match=r"cannot go on with protocol: text -> cot"):
        run_stages(run, config_of(tmp_path, "benchmark_protocols.truth=cot"))


def test_a_benchmark_that_is_added_to_an_imported_run_has_its_own_grader(
    tmp_path: Path, config: RunConfig
) -> None:
    run = write_responses(tmp_path / "run", config, ["#### 18", "Answer: A", "Answer: True"])
    every = run.trajectories.read()
    with run.lock():
        run.trajectories.replace([t for t in every if t.benchmark == "school"])
        grade(run, config)
        assert "grade" not in (run.manifest() or {})
        run.trajectories.append([t for t in every if t.benchmark != "school"])
        grade(run, config)
    assert set(verdicts(run)) == set(FILES)


def test_stated_confidences_beside_others(tmp_path: Path, config: RunConfig) -> None:
    assert named_estimators(config) == ["trace"]
    assert named_estimators(config_of(tmp_path, "protocol=verbalized")) == ["verbalized_protocol"]
    mixed = config_of(
        tmp_path, "benchmark_protocols.truth=verbalized", "score.estimators=[verbalized]"
    )
    stated = '{"final_answer": "True", "confidence": 0.7}'
    run = write_responses(tmp_path / "run", mixed, ["#### 18", "Answer: A", stated])
    run_stages(run, mixed)
    # Only the two that state none have been asked.
    assert len(contents(run)["replies"]) == 2
    benchmarks = {t.key: t.benchmark for t in run.trajectories.read()}
    (value,) = (c.value for c in run.confidences.read() if benchmarks[c.key] == "truth")
    assert value == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("override", "error", "message"),
    [
        ("benchmark_protocols.trut=cot", ConfigError, r"benchmark_protocols names 'trut'"),
        ("benchmark_graders.trut=text", ConfigError, r"benchmark_graders names 'trut'"),
        ("benchmark_graders.truth=txt", ConfigError, r"unknown grader.*'text'"),
        ("benchmark_graders.truth=judge", ConfigError, r"'judge' has no base_url"),
    ],
)
def test_what_is_wrong_is_said_before_any_work(
    tmp_path: Path, config: RunConfig, override: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        check_choices(config_of(tmp_path, override))


def test_ways_that_nobody_knows_are_said_before_any_work(tmp_path: Path, config: RunConfig) -> None:
    text, _ = FILES["truth"]
    (tmp_path / "truth.yaml").write_text(text.replace("grader: text", "grader: txt"))
    with pytest.raises(UsageError, match=r"Unknown grader 'txt'\. Did you mean 'text'"):
        check_choices(config)
    (tmp_path / "truth.yaml").write_text(text.replace("protocol: text", "protocol: txt"))
    with pytest.raises(UsageError, match=r"Unknown protocol 'txt'\. Did you mean 'text'"):
        check_choices(config)


def test_a_plan_counts_the_problems_of_a_file(config: RunConfig) -> None:
    assert problem_count(config, "animals") == 1


def test_where_nobody_says_the_grader_is_that_of_the_protocol() -> None:
    def grader(protocol: str) -> str:
        return load_config(None, ["benchmarks=[new]", f"protocol={protocol}"]).grader_for("new")

    assert [grader(p) for p in ("cot", "hashes", "letter", "text", "json")] == [
        *("maths", "maths", "choice", "text", "json")
    ]
    config = load_config(None, ["benchmarks=[math500]", "protocol=letter"])
    assert config.grader_for("math500") == "maths"
