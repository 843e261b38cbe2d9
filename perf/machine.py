"""The machine in words, for the head of a section: hardware, and the versions that matter."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import torch

PACKAGES = ("torch", "triton", "transformers", "numpy", "numba")


def describe(device: torch.device, peers: Sequence[str] = ()) -> dict[str, str]:
    """Name -> words, in the order in which the page shows them."""
    found = {
        "CPU": f"{_cpu_model()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads used",
        "memory": f"{_memory_bytes() / 2**30:.0f} GiB",
    }
    if device.type == "cuda":
        card = torch.cuda.get_device_properties(device)
        found["GPU"] = f"{card.name}, {card.total_memory / 2**30:.0f} GiB"
        found["CUDA"] = str(torch.version.cuda)
    found["Python"] = platform.python_version()
    for package in (*PACKAGES, *peers):
        found[package] = version(package)
    return found


def version(package: str) -> str:
    """Of an installed package, or that it is not there."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
