"""How near what traces hold comes to what DeepConf and self-certainty measure.

Both need log-probabilities of tokens that were not taken, which traces do not have. This reads a
run's responses once more with their own generators and compares:

    python -m perf.certainty RUN
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from divtok.evaluate.metrics import auroc
from divtok.models.load import load_model
from divtok.records import Trace, Trajectory, Verdict
from divtok.score.estimators.certainty import window_means
from divtok.store.run import Run

if TYPE_CHECKING:
    from divtok.records import FloatArray

TOP = 20  # what DeepConf's code asks a server for
WINDOWS = (8, 32, 2048)
RESPONSES = 400  # of each generator

Numbers = npt.NDArray[np.float64]


def main(folder: Path) -> None:
    run = Run.open(folder)
    verdicts = {grade.key: grade.verdict for grade in run.grades.read()}
    traces = {trace.key: trace for trace in run.traces.read() if trace.status == "ok"}
    decided = (Verdict.CORRECT, Verdict.INCORRECT)
    rows = [t for t in run.trajectories.read() if t.key in traces and verdicts[t.key] in decided]
    for generator in sorted({t.generator for t in rows}):
        own = [t for t in rows if t.generator == generator][:RESPONSES]
        right = np.array([verdicts[t.key] == Verdict.CORRECT for t in own])
        _compare(generator, own, [traces[t.key] for t in own], right)


def _compare(
    generator: str, rows: list[Trajectory], traces: list[Trace], right: npt.NDArray[np.bool_]
) -> None:
    model: Any = load_model(generator, device="cpu", dtype="float32").model
    read = [_read(model, row) for row in rows]
    tops, certain = ([one[i] for one in read] for i in range(2))
    measures = {
        "entropy": [-trace.entropy_p for trace in traces],
        "own log-prob": [trace.logprob_p for trace in traces],
    }
    _say(f"{generator}: {len(rows)} responses, {right.mean():.2f} of them right")
    for name, values in measures.items():
        _say(f"  tokens: top-{TOP} confidence with {name}: {_correlation(tops, values):.2f}")
    for window in WINDOWS:
        for kind, of in (("group", _group), ("tail", _tail)):
            true = np.array([of(one, window) for one in tops])
            text = f"  {kind}, window {window}: AUROC of the source's {_percent(true, right)}"
            for name, values in measures.items():
                found = np.array([of(one, window) for one in values])
                near = _correlation([true], [found])
                text += f"; {name} {_percent(found, right)}, correlation {near:.2f}"
            _say(text)
    true = np.array([one.mean() for one in certain])
    reverse = np.array([_tail(one, len(one)) for one in measures["entropy"]])
    _say(
        f"  self-certainty: AUROC {_percent(true, right)}; its reverse {_percent(reverse, right)}, "
        f"correlation {_correlation([true], [reverse]):.2f}"
    )


def _read(model: Any, row: Trajectory) -> tuple[FloatArray, FloatArray]:
    """[T] each: minus the mean log-probability of the most likely tokens, and KL(uniform || P)."""
    import torch

    with torch.inference_mode():
        logits = model(torch.tensor([[*row.prompt_ids, *row.token_ids]])).logits[0]
    logs = torch.log_softmax(logits[len(row.prompt_ids) - 1 : -1].float(), -1)
    top = -logs.topk(TOP, -1).values.mean(-1)
    return top.numpy(), (-logs.mean(-1)).numpy() - np.log(logs.shape[-1])


def _group(values: FloatArray, window: int) -> float:
    return float(window_means(values, window).min())


def _tail(values: FloatArray, window: int) -> float:
    return float(values[-window:].mean(dtype=np.float64))


def _correlation(one: list[Any], other: list[Any]) -> float:
    """Spearman's, over all values of both."""
    x, y = (np.argsort(np.argsort(np.concatenate(values))) for values in (one, other))
    return float(np.corrcoef(x, y)[0, 1])


def _percent(values: Numbers, right: npt.NDArray[np.bool_]) -> str:
    found = auroc(values, right)
    return "none" if found is None else f"{100 * found:.1f}"


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
