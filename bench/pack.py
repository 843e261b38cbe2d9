"""A finished run -> the rows of a bench, for every pair that read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from bench.packed import Row
from divtok.records import Grade, Trajectory
from divtok.store.run import Run


def rows_of(
    run: Run, *, part: str, names: Mapping[str, str], problems: int | None = None
) -> Iterator[Row]:
    """Every trace of the run with its grade; `names` shortens the names of models.

    Of each benchmark the first `problems` problems; all where it is left out.
    """
    trajectories = {t.key: t for batch in run.trajectories.batches() for t in batch}
    grades = {g.key: g for batch in run.grades.batches() for g in batch}
    chosen = _first_problems(trajectories, problems)
    answers = _answers(trajectories, grades)
    for traces in run.traces.batches():
        for trace in traces:
            trajectory = trajectories[trace.key]
            if trace.status != "ok" or (trajectory.benchmark, trajectory.problem_id) not in chosen:
                continue
            row = Row(
                part=part,
                benchmark=trajectory.benchmark,
                generator=trajectory.generator,
                problem_id=trajectory.problem_id,
                key=trace.key,
                verdict=grades[trace.key].verdict.value,
                truncated=trajectory.truncated,
                answer=answers[trace.key],
                change="none",
                trace=trace,
            )
            yield shortened(row, names)


def shortened_names() -> dict[str, str]:
    """Models of the embedded family by their own names."""
    return {f"divtok/tiny-{size}": f"tiny-{size}" for size in ("0.3m", "0.5m", "0.9m", "1.6m")}


def shortened(row: Row, names: Mapping[str, str]) -> Row:
    """With the models' short names where they have one."""
    p, q, generator = (names.get(m, m) for m in (row.trace.p, row.trace.q, row.generator))
    return replace(row, generator=generator, trace=replace(row.trace, p=p, q=q))


def _first_problems(
    trajectories: Mapping[str, Trajectory], problems: int | None
) -> set[tuple[str, str]]:
    seen: dict[str, dict[str, None]] = {}
    for t in sorted(trajectories.values(), key=lambda t: (t.benchmark, t.problem_id)):
        seen.setdefault(t.benchmark, {})[t.problem_id] = None
    return {(b, p) for b, of in seen.items() for p in list(of)[:problems]}


def _answers(trajectories: Mapping[str, Trajectory], grades: Mapping[str, Grade]) -> dict[str, int]:
    """The number of each response's answer among the different ones to its problem."""
    known: dict[tuple[str, str, str], dict[str, int]] = {}
    found: dict[str, int] = {}
    for key, t in trajectories.items():
        text = None if t.truncated or t.failed else grades[key].extracted
        of = known.setdefault((t.generator, t.benchmark, t.problem_id), {})
        found[key] = -1 if text is None else of.setdefault(text, len(of))
    return found
