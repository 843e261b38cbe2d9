"""How much the K most likely tokens of two models settle, on responses of a run that was read here.

    python -m perf.topk RUN P Q --theta 0.55 [--responses 8]

The lists that servers would send are made from P and Q themselves; the exact divergences are the
run's own traces under that pair.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from divtok.evidence.kind import Gathering
from divtok.models.load import LoadedModel, load_model
from divtok.records import Trajectory
from divtok.stages.readers import as_read_by
from divtok.stages.stored import stored_config
from divtok.store.run import Run
from divtok.trace.topk.bounds import jsd_bounds
from divtok.trace.topk.known import Known

K = (1, 5, 20, 50, 100)
ROUNDING = 1e-5  # bits by which a trace may differ from what is computed here


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("p")
    parser.add_argument("q")
    parser.add_argument("--theta", type=float, required=True)
    parser.add_argument("--responses", type=int, default=8)
    given = parser.parse_args()
    run = Run.open(given.run)
    traces = {t.key: t for t in run.traces.read() if (t.p, t.q) == (given.p, given.q)}
    read = [t for t in run.trajectories.read() if t.key in traces and traces[t.key].status == "ok"]
    config = stored_config(run)
    questions = Gathering(run, config).questions()
    as_text = [t.key for t in traces.values() if t.retokenized]
    found = as_read_by(given.p, read[: given.responses], questions, config, as_text=as_text)
    rows = found.rows
    models = [load_model(ref, device="cpu") for ref in (given.p, given.q)]
    lists = [[logprobs(model, row) for model in models] for row in rows]
    print(
        f"{'K':>4}{'tokens':>9}{'certain':>10}{'width':>9}{'count':>16}{'exact':>7}{'outside':>9}"
    )
    for k in K:
        tokens = low_count = high_count = exact = outside = 0
        width = 0.0
        for row, both in zip(rows, lists, strict=True):
            low, high = jsd_bounds(*(known(table, row.token_ids, k) for table in both))
            trace, counts = traces[row.key], traces[row.key].reasoning()
            tokens += int(counts.sum())
            width += float((high - low)[counts].sum())
            low_count += int((counts & (low > given.theta)).sum())
            high_count += int((counts & (high > given.theta)).sum())
            exact += int((counts & (trace.jsd_bits > given.theta)).sum())
            off = (trace.jsd_bits < low - ROUNDING) | (trace.jsd_bits > high + ROUNDING)
            outside += int(off.sum())
        certain = 1 - (high_count - low_count) / tokens
        print(
            f"{k:>4}{tokens:>9,}{100 * certain:>9.2f}%{width / tokens:>9.4f}"
            f"{f'{low_count} to {high_count}':>16}{exact:>7}{outside:>9}"
        )


def logprobs(loaded: LoadedModel, row: Trajectory) -> Any:
    """[T, V] of what may come at each token of the response."""
    import torch

    with torch.inference_mode():
        logits = loaded.model(torch.tensor([[*row.prompt_ids, *row.token_ids]])).logits[0]
    return torch.log_softmax(logits[len(row.prompt_ids) - 1 : -1].double(), dim=-1)


def known(table: Any, token_ids: Sequence[int], k: int) -> Known:
    """The K most likely tokens and the one that came, in float32 as a server sends them."""
    import torch

    top = table.topk(k, dim=-1)
    own = torch.tensor(list(token_ids))[:, None]
    listed = (top.indices == own).any(dim=-1, keepdim=True)
    ids = torch.cat([top.indices, torch.where(listed, -1, own)], dim=1)
    values = torch.cat([top.values, torch.where(listed, -torch.inf, table.gather(1, own))], dim=1)
    return Known(ids.numpy(), values.float().double().numpy(), np.exp(top.values[:, -1].numpy()))


if __name__ == "__main__":
    main()
