"""A large run that is made up, and what the verbs that read it cost: time, memory, bytes read.

    python -m perf.big_run make FOLDER                       100,000 traces of about 1,000 tokens
    python -m perf.big_run measure FOLDER --out FILE.json    each verb in a process of its own

`make` writes a run of two generators and two benchmarks through the store's own tables, a few
hundred rows at a time. The numbers are random but shaped like real ones, at full precision, so
that they take as much space as real ones: most divergences near 0, a few large ones, more of them
in wrong responses. The seed decides all of it.

`measure` works on a copy whose large files are links, so the run stays as it was made. A process
that grows beyond --limit-gb is stopped, and the result says so. Files are read once beforehand:
they come from memory where there is room for them. Linux only.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

# The process that measures stays small: its own size is the least that a child seems to have.
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

VERBS = ("score", "score", "evaluate", "sweep")
OPTIONS = {"evaluate": ("--json",)}
POLL_S = 0.02
GIB = 2**30


def make(folder: Path, *, traces: int, tokens: int, trace_rows: int, seed: int) -> None:
    """Write the run. Needs some 30 bytes of disk for each token."""
    from divtok.store.run import Run, require_space

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


@dataclasses.dataclass(frozen=True, slots=True)
class Child:
    """One process. Bytes read are those of all its read calls, files of Python's own among them.

    The peak is the largest resident set, as the system tells when the process is gone. Reading
    through a memory map is no read call and would not be counted.
    """

    command: str
    ended: str
    seconds: float
    cpu_seconds: float
    load_before: float  # processes of the machine that wanted to run, a mean over a minute
    peak_bytes: int
    read_bytes: int


def measure(folder: Path, *, verbs: Sequence[str], limit_gb: float, note: str) -> dict[str, Any]:
    """Every verb, one after another, on one copy of the run; before them what starting costs."""
    children: list[Child] = []
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}-") as scratch:
        run = Path(scratch) / "run"
        shutil.copytree(folder, run, copy_function=_link)
        asked = [[verb, str(run), *OPTIONS.get(verb, ())] for verb in verbs]
        for arguments in (["--version"], *asked):
            _read_once(run)
            found = _watched(arguments, run, limit_gb * GIB)
            print(_in_words(found), file=sys.stderr, flush=True)
            children.append(found)
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": _commit(),
        "run": _about(folder),
        "note": note,
        "limit_gib": limit_gb,
        "children": [dataclasses.asdict(child) for child in children],
    }


def _link(source: str, target: str) -> None:
    """Shards are never changed once they are there; the few other files may be."""
    (os.link if source.endswith(".parquet") else shutil.copy2)(source, target)


def _read_once(folder: Path) -> None:
    for path in folder.rglob("*.parquet"):
        with path.open("rb") as file:
            while file.read(2**20):
                pass


def _about(folder: Path) -> dict[str, Any]:
    import pyarrow.parquet as pq

    shards = sorted(folder.glob("*/*.parquet"))
    sizes: dict[str, int] = {}
    for shard in shards:
        name = shard.parent.name
        sizes[name] = sizes.get(name, 0) + shard.stat().st_size
    traces = [shard for shard in shards if shard.parent.name == "traces"]
    heads = [pq.read_metadata(shard) for shard in traces]
    groups = [head.row_group(index) for head in heads for index in range(head.num_row_groups)]
    places: list[Any] = [group.column(at) for group in groups for at in range(group.num_columns)]
    tokens = sum(p.num_values for p in places if p.path_in_schema.startswith("jsd_bits."))
    return {
        "traces": sum(head.num_rows for head in heads),
        "tokens": tokens,
        "shards_of_traces": len(traces),
        "bytes": sizes,
    }


def _watched(arguments: Sequence[str], run: Path, limit: float) -> Child:
    """Run it to its end, or stop it where it takes more memory than the limit."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryFile() as errors:
        begin = time.perf_counter()
        command = [sys.executable, "-m", "divtok", *arguments]
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        killed_at: int | None = None
        try:
            while os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                size = _resident(child.pid)
                if size > limit and killed_at is None:
                    killed_at = size
                    child.kill()
                time.sleep(POLL_S)
        except BaseException:
            child.kill()
            raise
        seconds = time.perf_counter() - begin
        # It is gone but not forgotten until it is waited for.
        read = _field(Path(f"/proc/{child.pid}/io"), "rchar:")
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        ended = f"exit {child.returncode}"
        if killed_at is not None:
            ended = f"killed at {killed_at / GIB:.1f} GiB"
        elif child.returncode:
            ended += f": {_last_line(errors)}"
    return Child(
        command=" ".join(["divtok", *arguments]).replace(str(run), "RUN"),
        ended=ended.replace(str(run), "RUN"),
        seconds=round(seconds, 2),
        cpu_seconds=round(used.ru_utime + used.ru_stime, 2),
        load_before=round(load, 1),
        peak_bytes=used.ru_maxrss * 1024,
        read_bytes=read,
    )


def _resident(pid: int) -> int:
    pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _field(path: Path, name: str) -> int:
    lines = path.read_text(encoding="ascii").splitlines()
    return next(int(line.removeprefix(name)) for line in lines if line.startswith(name))


def _last_line(file: BinaryIO) -> str:
    file.seek(0)
    lines = file.read().decode(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else ""


def _in_words(child: Child) -> str:
    return (
        f"{child.command}: {child.ended}, {child.seconds:.1f} s ({child.cpu_seconds:.1f} s CPU), "
        f"peak {child.peak_bytes / GIB:.2f} GiB, read {child.read_bytes / GIB:.2f} GiB"
    )


def _commit() -> str:
    """Of the code that is measured, where it is a checkout."""
    from importlib.util import find_spec

    found = find_spec("divtok")
    where = Path((found and found.origin) or __file__).parent
    asked = ("git", "-C", str(where), "describe", "--always", "--dirty")
    done = subprocess.run(asked, capture_output=True, text=True)
    return done.stdout.strip() or "not a checkout"


def add_to(file: Path, found: dict[str, Any]) -> None:
    """The measurement behind those that the file has, with the machine of the last one."""
    import torch

    from perf.machine import describe

    stored: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    content = {
        "command": "python -m perf.big_run measure",
        "machine": describe(torch.device("cpu"), ("pyarrow", "polars")),
        "measurements": [*stored.get("measurements", ()), found],
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m perf.big_run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    making = verbs.add_parser("make", help="write the run")
    making.add_argument("folder", type=Path)
    making.add_argument("--traces", type=_positive, default=100_000)
    making.add_argument("--tokens", type=_positive, default=1000, help="of a response, on average")
    making.add_argument("--trace-rows", type=_positive, default=TRACE_ROWS, help="of a shard")
    making.add_argument("--seed", type=int, default=0)
    measuring = verbs.add_parser("measure", help="run each verb on it in a process of its own")
    measuring.add_argument("folder", type=Path)
    measuring.add_argument("--out", type=Path, required=True, help="JSON; what is there stays")
    measuring.add_argument("--verbs", nargs="+", default=VERBS, choices=sorted(set(VERBS)))
    measuring.add_argument("--limit-gb", type=float, default=16, help="GiB for one process")
    measuring.add_argument("--note", default="", help="a word on this measurement, kept with it")
    given = parser.parse_args(arguments)
    if given.verb == "make":
        make(
            given.folder,
            traces=given.traces,
            tokens=given.tokens,
            trace_rows=given.trace_rows,
            seed=given.seed,
        )
    else:
        found = measure(given.folder, verbs=given.verbs, limit_gb=given.limit_gb, note=given.note)
        add_to(given.out, found)
    return 0


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return value


if __name__ == "__main__":
    sys.exit(main())
