"""The kernel behind the output layers, against float64 on the same logits."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from divtok.trace.kernels import plain
from divtok.trace.kernels.common import COLUMNS, FLOAT_BYTES, finish
from perf.gpu.findings import Finding

ALLOWED = 2e-6
# Those of at most one, each with how its error is called.
CHECKED = {"jsd_bits": "error in bits", "total_variation": "error of the total variation"}
WIDTHS = (768, 49_152, 151_936, 262_144)
POSITIONS = 64


def check(device: torch.device) -> Iterator[Finding]:
    from divtok.trace.kernels import cuda

    torch.manual_seed(0)
    for width in WIDTHS:
        worst: dict[str, float] = {}
        outside = 0
        for kind, p, q in _cases(width, device):
            tokens = torch.randint(0, width, (POSITIONS,), device=device)
            found = torch.full((len(COLUMNS), POSITIONS), float("nan"), device=device)
            cuda.row_kernel(p.clone(), q.clone(), tokens, width, found, masked=kind == "masked")
            exact = _reference(p, q, tokens, width).cpu()
            found = found.cpu()
            finished = finish(found).columns()
            for name, words in CHECKED.items():
                outside += int((~((finished[name] >= 0) & (finished[name] <= 1))).sum())
                # What the kernel gave, not what was cut to the range.
                row = COLUMNS.index(name)
                worst[f"{words}, {kind}"] = float((found[row].double() - exact[row]).abs().max())
        holds = max(worst.values()) <= ALLOWED and outside == 0
        yield Finding("kernels", f"{width:,} tokens", holds, {**worst, "outside [0, 1]": outside})


def _cases(width: int, device: torch.device) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Logits of p, with some padding behind the shared width, and of q."""
    more = width + 128

    def normal(columns: int, scale: float) -> torch.Tensor:
        return torch.randn(POSITIONS, columns, device=device) * scale

    for scale in (0.5, 2.5, 20.0):
        yield f"sd {scale:g}", normal(more, scale), normal(width, scale)
    near = normal(more, 2.5)
    yield "nearly equal", near, near[:, :width] + normal(width, 1e-3)
    apart_p, apart_q = normal(more, 0.1), normal(width, 0.1)
    apart_p[:, : width // 2] += 60.0
    apart_q[:, width // 2 :] += 60.0
    yield "apart", apart_p, apart_q
    masked_p, masked_q = normal(more, 2.5), normal(width, 2.5)
    masked_p[:, :width:3] = -torch.inf
    masked_q[:, 1::3] = -torch.inf
    yield "masked", masked_p, masked_q


def _reference(p: torch.Tensor, q: torch.Tensor, tokens: torch.Tensor, width: int) -> torch.Tensor:
    """Every column by the plain path in float64, a few rows at a time."""
    out = torch.empty(len(COLUMNS), len(tokens), dtype=torch.float64, device=p.device)
    rows = max(1, (2 << 30) // (20 * FLOAT_BYTES * width))
    for start in range(0, len(tokens), rows):
        part = slice(start, start + rows)
        plain.row_kernel(p[part].double(), q[part].double(), tokens[part], width, out[:, part])
    return out
