"""The run that is made up."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

# The process that measures imports this, too, and stays small.
if TYPE_CHECKING:
    import numpy as np

    from divtok.records import Grade, Problem, Trace, Trajectory

GENERATORS = ("divtok/tiny-0.5m", "divtok/tiny-0.9m")
AUXILIARY = "divtok/tiny-0.3m"
BENCHMARKS = ("arith-medium", "arith-hard")
ACCURACY = {
    ("arith-medium", "divtok/tiny-0.5m"): 0.6,
    ("arith-medium", "divtok/tiny-0.9m"): 0.75,
    ("arith-hard", "divtok/tiny-0.5m"): 0.35,
    ("arith-hard", "divtok/tiny-0.9m"): 0.5,
}
SAMPLES = 10  # for each problem
UNANSWERED, CUT_OFF = 0.02, 0.01
DIVERGENT = {True: 2.5, False: 6.0}  # tokens of a right and of a wrong response, on average
VOCABULARY = 768
PROMPT_TOKENS = 60
# Rows of a shard, as the stages store them: a batch of generating, of grading and of tracing.
TRAJECTORY_ROWS, GRADE_ROWS, TRACE_ROWS = 128, 256, 64
BLOCK = 256  # rows in memory


def make(folder: Path, *, traces: int, tokens: int, trace_rows: int, seed: int) -> None:
    """Write the run. Needs some 30 bytes of disk for each token."""
    from divtok.store.run import Run
    from divtok.store.space import require_space

    require_space(folder, 33 * traces * tokens)
    run = Run.create_or_open(folder)
    with run.lock():
        if run.manifest() is not None:
            sys.exit(f"{folder} holds a run already.")
        run.write_manifest(_manifest(tokens))
        run.write_config(_config(traces))
        run.problems.append(list(_problems(traces)))
        for done, rows in enumerate(_blocks(traces, tokens, seed)):
            run.trajectories.append(rows.trajectories[:TRAJECTORY_ROWS])
            run.trajectories.append(rows.trajectories[TRAJECTORY_ROWS:])
            run.grades.append(rows.grades)
            for start in range(0, len(rows.traces), trace_rows):
                run.traces.append(rows.traces[start : start + trace_rows])
            if done % 40 == 0:
                print(f"{done * BLOCK:,} of {traces:,} traces", file=sys.stderr, flush=True)


def _sampling(tokens: int) -> dict[str, Any]:
    return {"temperature": 1.0, "top_p": 1.0, "max_length": 2 * tokens, "seed": 0}


def _manifest(tokens: int) -> dict[str, Any]:
    """The sections of a real one; its models are named, their weights made nothing here."""
    dtype = dict.fromkeys((*GENERATORS, AUXILIARY), "float32")
    models = dict.fromkeys((*GENERATORS, AUXILIARY), "made up")
    found: dict[str, Any] = {
        "problems": {"benchmarks": dict.fromkeys(BENCHMARKS, "made up")},
        "generate": {
            "models": {g: models[g] for g in GENERATORS},
            "dtype": {g: dtype[g] for g in GENERATORS},
            "protocol": "cot",
            "seed": 0,
            "samples": {g: dict.fromkeys(BENCHMARKS, SAMPLES) for g in GENERATORS},
            "sampling": dict.fromkeys(GENERATORS, _sampling(tokens)),
        },
    }
    for generator in GENERATORS:
        pair = (generator, AUXILIARY)
        found[f"trace {generator} {AUXILIARY}"] = {
            "models": {ref: models[ref] for ref in pair},
            "dtype": {ref: dtype[ref] for ref in pair},
        }
    return found


def _config(traces: int) -> str:
    """run.yaml, as text: the rest of it is the family's."""
    import yaml

    chosen = {
        "family": "tiny",
        "generators": list(GENERATORS),
        "benchmarks": list(BENCHMARKS),
        "limit": _problem_count(traces),
        "samples": SAMPLES,
    }
    return yaml.safe_dump(chosen, sort_keys=False)


def _problem_count(traces: int) -> int:
    """Of one benchmark."""
    return -(-traces // (len(GENERATORS) * len(BENCHMARKS) * SAMPLES))


def _problems(traces: int) -> Iterator[Problem]:
    from divtok.records import Problem

    for benchmark in BENCHMARKS:
        for number in range(_problem_count(traces)):
            question = f"A store has {number} coins and gets {number + 7} more. How many are there?"
            yield Problem(f"{benchmark}-{number:05d}", benchmark, question, str(2 * number + 7))


@dataclasses.dataclass(frozen=True, slots=True)
class _Rows:
    trajectories: list[Trajectory]
    grades: list[Grade]
    traces: list[Trace]


def _blocks(traces: int, tokens: int, seed: int) -> Iterator[_Rows]:
    """All rows, some at a time: by generator and benchmark, then by problem and sample."""
    import numpy as np

    problems = list(_problems(traces))
    owed = traces
    for generator in GENERATORS:
        for number, benchmark in enumerate(BENCHMARKS):
            members = [p for p in problems if p.benchmark == benchmark]
            # How hard a problem is decides on all its samples.
            ease = np.random.default_rng([seed, number]).uniform(-0.3, 0.3, len(members))
            asked = [(p, e, s) for p, e in zip(members, ease, strict=True) for s in range(SAMPLES)]
            asked = asked[:owed]
            owed -= len(asked)
            for start in range(0, len(asked), BLOCK):
                place = [seed, GENERATORS.index(generator), number, start]
                rng = np.random.default_rng(place)
                yield _block(asked[start : start + BLOCK], generator, tokens, rng)


def _block(
    asked: Sequence[tuple[Problem, float, int]],
    generator: str,
    tokens: int,
    rng: np.random.Generator,
) -> _Rows:
    from divtok.records import Grade, Sampling, Trajectory, Verdict, trajectory_key

    sampling = Sampling(**_sampling(tokens))
    ease = [ACCURACY[p.benchmark, generator] + e for p, e, _ in asked]
    right = rng.random(len(asked)) < ease
    # Wrong responses are a little longer.
    length = (tokens * (rng.uniform(0.8, 1.15, len(asked)) + 0.05 * ~right)).astype(int)
    fate = rng.random(len(asked))
    ids = rng.integers(3, VOCABULARY, (len(asked), int(length.max())))
    words = _words()
    found = _Rows([], [], [])
    for row, (problem, _, sample) in enumerate(asked):
        cut, unanswered = fate[row] < CUT_OFF, fate[row] < CUT_OFF + UNANSWERED
        key = trajectory_key(
            problem, generator=generator, protocol="cot", sampling=sampling, sample=sample
        )
        written = ids[row, : length[row]].tolist()
        answer = problem.answer if right[row] else f"{problem.answer}1"
        ending = "" if unanswered else f"\\boxed{{{answer}}}."
        found.trajectories.append(
            Trajectory(
                key=key,
                problem_id=problem.id,
                benchmark=problem.benchmark,
                sample=sample,
                generator=generator,
                prompt_ids=tuple(range(3, 3 + PROMPT_TOKENS)),
                token_ids=tuple(written),
                text="".join([words[i] for i in written]) + ending,
                finish_reason="length" if cut else "stop",
                protocol="cot",
                sampling=sampling,
            )
        )
        verdict = Verdict.CORRECT if right[row] else Verdict.INCORRECT
        found.grades.append(
            Grade(key, None, Verdict.UNANSWERED, "no final answer was found")
            if unanswered
            else Grade(key, answer, verdict)
        )
    answered = [grade.extracted is not None for grade in found.grades]
    keys = [grade.key for grade in found.grades]
    found.traces.extend(_traces(keys, answered, generator, right, length, rng))
    return found


def _words() -> list[str]:
    """A short text for each token, about as long as a real one."""
    letters = "etaoinshrdlucmfw"
    return [
        (" " if number % 3 else "") + letters[number % 16] + letters[number // 16 % 16]
        for number in range(VOCABULARY)
    ]


def _traces(
    keys: Sequence[str],
    answered: Sequence[bool],
    generator: str,
    right: np.ndarray[Any, Any],
    length: np.ndarray[Any, Any],
    rng: np.random.Generator,
) -> Iterator[Trace]:
    """Numbers that could be a pair's; each row is cut from arrays for all of them, [B, T]."""
    import numpy as np

    from divtok.records import Trace

    shape = (len(keys), int(length.max()))

    def spread(centre: float, width: float) -> np.ndarray[Any, Any]:
        values = rng.standard_normal(shape, dtype=np.float32)
        return np.exp(np.float32(centre) + np.float32(width) * values)

    weaker = 1.3 if generator == GENERATORS[0] else 1.0
    rate = np.where(right, DIVERGENT[True], DIVERGENT[False]) * weaker / length
    spots = rng.random(shape, dtype=np.float32) < rate[:, None]
    jsd = np.minimum(spread(-11, 2.5), 1)
    jsd[spots] = 0.05 + 0.9 * rng.beta(1.2, 2, int(spots.sum())).astype(np.float32)
    entropy = np.minimum(spread(-4, 2), np.float32(np.log(VOCABULARY)))
    entropy[spots] += rng.uniform(0.2, 1.2, int(spots.sum())).astype(np.float32)
    logprob = -np.minimum(spread(-5, 2), 15)
    logprob[spots] -= rng.exponential(0.7, int(spots.sum())).astype(np.float32)
    arrays: dict[str, Any] = {
        "logprob_p": logprob,
        "logprob_q": np.minimum(logprob - np.sqrt(jsd) * spread(-0.5, 0.5), 0),
        "entropy_p": entropy,
        "entropy_q": entropy * spread(0.1, 0.2),
        "jsd_bits": jsd,
        "kl_pq": jsd * spread(1.0, 0.3),
        "kl_qp": jsd * spread(1.1, 0.3),
    }
    for row, (key, stop) in enumerate(zip(keys, length.tolist(), strict=True)):
        span = (stop - 6, stop - 3) if answered[row] else (None, None)
        yield Trace(
            key=key,
            p=generator,
            q=AUXILIARY,
            **{name: values[row, :stop].copy() for name, values in arrays.items()},
            answer_start=span[0],
            answer_stop=span[1],
            turn_end=stop - 1,
            dropped_mass_p=0.0,
            dropped_mass_q=0.0,
        )
