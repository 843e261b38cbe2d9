"""A run's rows as a file, from Python: `divtok export`."""

from __future__ import annotations

from pathlib import Path

from divtok.config.run import RunConfig
from divtok.errors import UsageError, did_you_mean
from divtok.progress import say
from divtok.stages.export import export
from divtok.stages.formats import Format
from divtok.stages.onto import export_onto
from divtok.store.run import Run


def exported(
    run: Run,
    config: RunConfig,
    out: str | Path,
    format_name: str | None,
    onto: str | Path | None,
    *,
    tokens: bool,
) -> int:
    """Write the rows of a run, or the file `onto` with columns added; says how many there are."""

    def nowhere(_: bytes) -> None:
        """In the place of standard output, for which there is a file."""

    file = Path(out)
    if onto is not None:
        if format_name is not None:
            raise UsageError("onto keeps the format of the file.", next_step="Give onto or format.")
        return export_onto(run, config, Path(onto), out=file, put=nowhere, tell=say, tokens=tokens)
    if format_name is not None and format_name not in list(Format):
        step = did_you_mean(format_name, list(Format))
        raise UsageError(f"There is no format '{format_name}'.", next_step=step)
    kind = None if format_name is None else Format(format_name)
    return export(run, config, out=file, put=nowhere, tell=say, format_name=kind, tokens=tokens)
