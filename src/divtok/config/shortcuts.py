"""Short names for keys of a config: options of the verbs, and keywords in Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from divtok.config.run import RunConfig
from divtok.errors import UsageError, did_you_mean
from divtok.problems.benchmark import BENCHMARKS
from divtok.report.text import slug

# The keys that each stands for; what they are set to, where that is not the value given.
SHORTCUTS: Mapping[str, Mapping[str, object]] = {
    "generator": {"generators": ...},
    "auxiliary": {"trace.auxiliary": ...},
    "benchmark": {"benchmarks": ...},  # and the file of one that is given as a path
    "theta": {"score.theta": ...},
    "dtype": {"generate.dtype": ..., "trace.dtype": ...},
    "device_map": {"generate.device_map": ..., "trace.device_map": ...},
    "base_url": {"generate.engine": "api", "generate.api.base_url": ...},
}
# Likewise for verbs that grade what is there.
_GRADING: Mapping[str, Mapping[str, object]] = {
    "verdict": {"grade.verdicts": ...},
    "scorer": {"grade.scorer": ...},
}


def spelled_out(named: Mapping[str, object]) -> dict[str, object]:
    """The keys of a config for these names; a short one that is None says nothing."""
    short = {**SHORTCUTS, **_GRADING}
    found: dict[str, object] = {}
    for name, value in named.items():
        if name not in short:
            found[name] = value
        elif value is not None:
            value = _several(value) if name in ("generator", "benchmark") else value
            found |= {key: value if fixed is ... else fixed for key, fixed in short[name].items()}
            if name == "benchmark":
                found |= _benchmarks(_several(value))
    return found


def run_name(config: RunConfig) -> str:
    """What a run is called by default: as its family, or as its generator without its folder."""
    if config.family is not None:
        return config.family
    return slug(Path(config.generator_presets()[0].model).name.removesuffix(".gguf"))


def _several(value: object) -> list[str]:
    """One name, or several."""
    names = [value] if isinstance(value, str | Path) else cast("Sequence[object]", value)
    return [str(name) for name in names]


def _benchmarks(given: Sequence[str]) -> dict[str, object]:
    """Benchmarks by name or file; a file is a benchmark of its own name."""
    files = {Path(name).stem: name for name in given if Path(name).is_file()}
    names = [Path(name).stem if name in files.values() else name for name in given]
    for name in names:
        if name not in files and name not in BENCHMARKS:
            raise UsageError(
                f"There is no benchmark '{name}', and no file of that name.",
                next_step=did_you_mean(name, BENCHMARKS.names()),
            )
    found: dict[str, object] = {f"benchmark_files.{name}": file for name, file in files.items()}
    return {"benchmarks": names, **found}
