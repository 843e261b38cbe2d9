"""The sections of a speed run by name: which device and which module measures them."""

from __future__ import annotations

from datetime import UTC, datetime

import torch

from divtok.errors import UsageError, did_you_mean
from divtok.models.load import pick_device
from perf import heads, pair, peers
from perf.machine import describe
from perf.results import SECTIONS, Section


def run_section(name: str, *, quick: bool, command: str) -> Section:
    """Measure one section on this machine. UsageError where it has no such device."""
    if name not in SECTIONS:
        raise UsageError(f"Unknown section '{name}'.", next_step=did_you_mean(name, SECTIONS))
    where, _, what = name.partition("-")
    device = pick_device("cuda" if where == "gpu" else "cpu")
    # Exactness of the heads' float32 products needs true float32, which is also the default.
    torch.set_float32_matmul_precision("highest")
    peers.add_peers_path()
    if what == "heads":
        ways, known = heads.WAYS, peers.PACKAGES
        cases, groups = heads.run(device, heads.plan(device, quick=quick))
    else:
        ways, known = pair.WAYS, ()
        cases, groups = pair.run(device, pair.plan(quick=quick))
    return Section(
        name=name,
        command=command,
        date=datetime.now(UTC).date().isoformat(),
        machine=describe(device, known),
        ways=ways,
        cases=tuple(cases),
        groups=groups,
    )
