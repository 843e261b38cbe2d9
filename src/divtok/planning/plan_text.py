"""A plan as text for the terminal: totals, models, each run, what is stored, and the assumptions.

Plain lines, made for 80 columns. Figures are in columns and are never cut; long names come last or
on a line of their own.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from divtok.models.sizes import API_MODELS
from divtok.planning.amounts import amount, many, number, size
from divtok.planning.memory import GPU
from divtok.planning.plan import CellPlan, Device, ModelPlan, Plan, RunPlan
from divtok.planning.speed import CPU
from divtok.planning.workload import EVIDENCE_KINDS, Work, WorkKind
from divtok.screen import visible

WIDTH = 80
UNKNOWN = "?"
_GAP = "  "
_STEPS: dict[WorkKind, str] = {
    "generate": "trajectories",
    "grade": "grades",
    "trace": "traces",
    "chain": "attention chains",
    "replies": "replies",
    "base": "base readings",
    "rewards": "rewards",
}
# The cells of one row, or a line across all columns.
Cells = Sequence[str] | str


def plan_text(plan: Plan, *, width: int = WIDTH) -> str:
    blocks = [_wrapped(totals_line(plan), width), _models(plan.models)]
    blocks += [_run(run, width) for run in plan.runs]
    blocks += _stored(plan, width)
    blocks.append("Assumptions\n" + _items(plan.assumptions, width))
    return "\n\n".join(blocks)


def totals_line(plan: Plan) -> str:
    t = plan.totals
    parts = [
        f"{many(t.runs, 'run')}, {many(t.generators, 'generator')}, "
        f"{many(t.benchmarks, 'benchmark')}: {t.responses:,} responses, about "
        f"{amount(t.tokens)} tokens",
        f"{size(t.download_bytes) if t.download_bytes else 'nothing'} to download",
        f"about {size(t.disk_bytes)} on disk",
    ]
    if any(run.device == "gpu" for run in plan.runs):
        parts.append(_spent(t.gpu_hours, t.gpu_hours_left, f"hours on {GPU}"))
    if any(run.device == "cpu" for run in plan.runs):
        parts.append(_spent(60 * t.cpu_hours, 60 * t.cpu_hours_left, f"minutes on {CPU}"))
    return "; ".join(parts) + "."


def _spent(time: float, left: float, unit: str) -> str:
    done = f", {number(left)} of them still to come" if left < time else ""
    return f"about {number(time)} {unit}{done}"


def _models(models: Sequence[ModelPlan]) -> str:
    rows: list[Cells] = [("download", "parameters", "model and its roles")]
    for model in models:
        parameters = UNKNOWN if model.parameters is None else amount(model.parameters)
        if "api" in model.roles:
            fetched, parameters = "none", "-"
        elif model.here:
            fetched = "here"
        else:
            fetched = UNKNOWN if model.download_bytes is None else size(model.download_bytes)
        rows.append((fetched, parameters, f"{visible(model.ref)}: {', '.join(model.roles)}"))
    return "Models\n" + _columns(rows, left=(2,))


def _run(run: RunPlan, width: int) -> str:
    unit = "h" if run.device == "gpu" else "min"
    rows: list[Cells] = [
        ("", "problems", "", "", "generate", "trace", "gather", ""),
        ("", "x samples", "responses", "tokens", unit, unit, unit, "disk"),
    ]
    for generator in run.generators:
        rows.append(visible(generator))
        rows += [_figures(cell, run.device) for cell in run.cells if cell.generator == generator]
    mean = ", ".join(f"{name} {_lengths(run, name)}" for name in run.benchmarks)
    pairs = sorted({sum(w.kind == "trace" for w in cell.work) for cell in run.cells})
    said = [
        f"Mean tokens of a response: {mean}.",
        f"Each response is read by {' or '.join(map(str, pairs))} "
        f"{'pair' if pairs == [1] else 'pairs'} of models.",
        *run.notes,
    ]
    title = visible(f"{run.name} (family {run.family}, protocol {run.protocol})")
    return "\n".join([_wrapped(title, width), _columns(rows, left=(0,)), _items(said, width)])


def _figures(cell: CellPlan, device: Device) -> Cells:
    kinds: tuple[tuple[WorkKind, ...], ...] = (("generate",), ("trace",), EVIDENCE_KINDS)
    return (
        _GAP + visible(cell.benchmark),
        f"{cell.problems:,} x {cell.samples}",
        f"{cell.responses:,}",
        amount(cell.tokens),
        *(_time(cell, device, of) for of in kinds),
        size(cell.disk_bytes),
    )


def _time(cell: CellPlan, device: Device, kinds: Sequence[WorkKind]) -> str:
    """Hours or minutes, or a dash where no model of ours has such work to do."""
    work = [w for w in cell.work if w.kind in kinds and not API_MODELS.issuperset(w.models)]
    hours = cell.hours(*kinds)
    if not work or hours is None:
        return UNKNOWN if work else "-"
    return number(hours if device == "gpu" else 60 * hours)


def _lengths(run: RunPlan, benchmark: str) -> str:
    """The means of all generators, lowest to highest, and whether they are assumed."""
    cells = [cell for cell in run.cells if cell.benchmark == benchmark]
    means = sorted({f"{cell.mean_tokens:,.0f}" for cell in cells}, key=lambda m: (len(m), m))
    shown = means[0] if len(means) == 1 else f"{means[0]} to {means[-1]}"
    if all(cell.measured for cell in cells):
        return f"{shown} (measured)"
    return f"{shown} (in part assumed)" if any(c.measured for c in cells) else f"{shown} (assumed)"


def _stored(plan: Plan, width: int) -> list[str]:
    there = [run for run in plan.runs if run.exists]
    absent = [visible(run.name) for run in plan.runs if not run.exists]
    blocks: list[str] = []
    for run in there:
        rows: list[Cells] = [("stored", "missing", "rows")]
        for name, work in _by_step(run).items():
            done, missing = sum(w.done for w in work), sum(w.missing for w in work)
            rows.append((f"{done:,}", f"{missing:,}", visible(name)))
        blocks.append(f"Stored in {visible(str(run.folder))}\n{_columns(rows, left=(2,))}")
    if not there:
        blocks.append(_wrapped(f"Nothing is stored in {visible(str(plan.folder))} yet.", width))
    elif absent:
        blocks.append(_wrapped(f"Nothing is stored yet for {', '.join(absent)}.", width))
    return blocks


def _by_step(run: RunPlan) -> dict[str, list[Work]]:
    """Steps of a run over its generators and benchmarks; each pair is a step of its own."""
    found: dict[str, list[Work]] = {}
    order = list(_STEPS)
    everything = (work for cell in run.cells for work in cell.work)
    for work in sorted(everything, key=lambda w: order.index(w.kind)):
        name = _STEPS[work.kind]
        if work.kind == "trace":
            name += " by " + " and ".join(ref.rsplit("/", 1)[-1] for ref in work.models)
        found.setdefault(name, []).append(work)
    return found


def _columns(lines: Sequence[Cells], *, left: Iterable[int]) -> str:
    """Rows in columns, right-justified but for those in `left`; lines across stay as they are."""
    rows = [line for line in lines if not isinstance(line, str)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    flush = set(left)
    return "\n".join(
        line
        if isinstance(line, str)
        else _GAP.join(
            cell.ljust(width) if number in flush else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _items(sentences: Iterable[str], width: int) -> str:
    return "\n".join(_wrapped(f"- {visible(text)}", width, indent=_GAP) for text in sentences)


def _wrapped(text: str, width: int, *, indent: str = "") -> str:
    # A path or name longer than a line stays whole, so that it can be copied.
    return textwrap.fill(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
