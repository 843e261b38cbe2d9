"""An auxiliary made of a generator, from Python: what the verb distil does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from divtok.distilling.facts import Distilled
from divtok.models.load import DType

if TYPE_CHECKING:
    from divtok.api.run import Run


def distil(
    model: str,
    *,
    layers: int | Sequence[int],
    text: str | Path | Run,
    out: str | Path | None = None,
    generator: str | None = None,
    tokens: int = 200_000,
    epochs: int | None = None,
    steps: int | None = None,
    batch_tokens: int = 1024,
    learning_rate: float | None = None,
    max_length: int = 4096,
    seed: int = 0,
    device: str | None = None,
    dtype: DType = "auto",
    revision: str | None = None,
    replace: bool = False,
) -> Distilled:
    """`divtok distil`: make an auxiliary of some layers of a generator without a small sibling.

    `layers` says how many to keep, evenly spaced with the first and the last, or which. The copy
    learns the model's next-token distributions on its own responses in the run `text`; a tenth of
    the problems is held out to measure on. `out` is the folder of the auxiliary, by default one
    here with the model's name and the number of layers; one that is there is replaced only on
    request. A response of more than `max_length` tokens, prompt included, is cut there.

    Example:
        >>> import divtok
        >>> model, wanted = "divtok/tiny-1.6m", {"benchmarks": ["arith-easy"], "limit": 4}
        >>> run = divtok.run({"family": "tiny", **wanted}, generators=[model], out="written")
        >>> made = divtok.distil(model, layers=2, text=run, out="small", steps=3)
        >>> divtok.load_pair(model, "small").q.name
        'small'
    """
    from divtok.stages.distil import Asked, default_folder, schedule_of
    from divtok.stages.distil import distil as made
    from divtok.stages.stored import open_run
    from divtok.store.run import Run

    asked = Asked(
        model=model,
        layers=layers,
        schedule=schedule_of(
            epochs=epochs,
            steps=steps,
            batch_tokens=batch_tokens,
            learning_rate=learning_rate,
            seed=seed,
        ),
        tokens=tokens,
        max_length=max_length,
        generator=generator,
        revision=revision,
        device=device,
        dtype=dtype,
    )
    # A name is looked for under runs/, anything else is the folder itself.
    if isinstance(text, str):
        opened = open_run(text)
    else:
        opened = Run.open(text if isinstance(text, Path) else text.path)
    folder = default_folder(model, layers) if out is None else Path(out)
    return made(opened, asked, folder, replace_old=replace)
