"""A command on a run that is there: what it adds, what stays, and what is said of it."""

from __future__ import annotations

from pathlib import Path

from divtok.config.joined import in_full, joined, kept
from divtok.config.run import RunConfig, load_config, resolve
from divtok.families.family import get_family

SMALL, OTHER = "divtok/tiny-0.5m", "divtok/tiny-0.9m"
BEFORE = (
    f"generators=['{SMALL}']",
    "benchmarks=['arith-easy']",
    "limit=5",
    "samples=2",
    "trace.max_batch_rows=6",
)


def config(*overrides: str) -> RunConfig:
    return load_config(None, list(overrides))


def before(*overrides: str) -> RunConfig:
    """As a run stores it."""
    return resolve(config(*BEFORE, *overrides))


def test_what_a_command_does_not_say_stays() -> None:
    stored = before("seed=3", "sampling.temperature=0.7", "score.n=8")
    found = joined(stored, config())
    assert resolve(found) == resolve(joined(stored, stored))
    assert (found.limit, found.samples, found.seed) == (5, 2, 3)
    assert (found.sampling.temperature, found.trace.max_batch_rows) == (0.7, 6)
    assert found.parameters_of("dtc_lin")["n"] == 8


def test_what_it_says_changes_that_and_nothing_else() -> None:
    found = joined(before(), config("limit=9", "trace.dtype=bfloat16"))
    assert (found.limit, found.samples) == (9, 2)
    assert (found.trace.dtype, found.trace.max_batch_rows) == ("bfloat16", 6)


def test_all_problems_may_be_asked_for() -> None:
    assert joined(before(), config("limit=null")).limit is None


def test_generators_and_benchmarks_join_in_the_order_in_which_they_come() -> None:
    found = joined(before(), config(f"generators=['{OTHER}']", "benchmarks=['arith-hard']"))
    assert found.generators == [SMALL, OTHER]
    assert found.benchmark_names() == ["arith-easy", "arith-hard"]
    again = joined(found, config(f"generators=['{OTHER}','{SMALL}']"))
    assert again.generators == [SMALL, OTHER]


def test_a_benchmark_that_joins_is_asked_in_its_own_way() -> None:
    found = joined(before(), config("benchmarks=['gpqa-diamond']"))
    assert found.protocol_for("arith-easy") == before().protocol_for("arith-easy")
    assert found.grader_for("gpqa-diamond") == config("benchmarks=['gpqa-diamond']").grader_for(
        "gpqa-diamond"
    )


def test_a_benchmark_of_which_nobody_says_how_is_asked_as_the_others(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text('{"id": "1", "problem": "1 + 1?", "answer": "2"}\n')
    mine = ("benchmarks=['mine']", f"benchmark_files.mine={tmp_path / 'mine.jsonl'}")
    found = joined(before("protocol=verbalized"), config(*mine))
    assert {found.protocol_for(name) for name in found.benchmark_names()} == {"verbalized"}
    own = joined(before("protocol=verbalized"), config(*mine, "benchmark_protocols.mine=cot"))
    assert [own.protocol_for(name) for name in ("arith-easy", "mine")] == ["verbalized", "cot"]


def test_theta_stays_as_it_was_set_and_as_the_family_had_it() -> None:
    assert joined(before("score.theta=0.2"), config("samples=4")).theta == 0.2
    assert joined(before(), config("samples=4")).theta == get_family("tiny").theta
    assert joined(before("score.theta=0.2"), config("score.theta=0.3")).theta == 0.3


def test_theta_of_another_pair_is_not_kept() -> None:
    """Which was fitted for the pair that read before."""
    found = joined(before("score.theta=0.2"), config("trace.auxiliary=divtok/tiny-0.9m"))
    assert found.score.theta is None


def test_what_is_kept_is_named_and_no_more() -> None:
    stored = before("score.theta=0.2", "sampling.temperature=0.7")
    expected = {
        "generators": [SMALL],
        "benchmarks": ["arith-easy"],
        "limit": 5,
        "samples": 2,
        "sampling.temperature": 0.7,
        "score.theta": 0.2,
        "trace.max_batch_rows": 6,
    }
    assert kept(stored, config()) == expected
    given = config("limit=9", "score.theta=0.3", f"generators=['{OTHER}']")
    assert kept(stored, given) == {
        key: value
        for key, value in expected.items()
        if key not in ("limit", "score.theta", "generators")
    }


def test_nothing_is_kept_of_a_run_that_has_only_what_its_family_says() -> None:
    assert kept(resolve(config()), config()) == {}


def test_a_config_in_full_keeps_nothing() -> None:
    stored = before("seed=3", "score.n=8")
    whole = in_full(config(f"generators=['{SMALL}']", "benchmarks=['arith-easy']", "samples=3"))
    found = joined(stored, whole)
    assert (found.limit, found.samples, found.seed) == (None, 3, 0)
    assert resolve(found) == resolve(whole)
    assert kept(stored, whole) == {}
