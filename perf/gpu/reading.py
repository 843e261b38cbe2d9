"""Models of real width: they load, read packs as they read each response alone, refuse mistakes."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import torch

from divtok.errors import ModelError
from divtok.models.load import LoadedModel
from divtok.packed.packs import build_pack
from divtok.packed.parts import find_decoder
from divtok.packed.probe import allowed_gap, gap
from divtok.trace.reader import Reader, make_reader
from perf.gpu.findings import Finding
from perf.gpu.models import QWEN_15B, SHAPES, build

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
# Shared prompts, and lanes beyond Gemma's window of 1,024 tokens.
PROMPT, RESPONSES = 150, (1500, 400, 37)


def check(device: torch.device) -> Iterator[Finding]:
    for shape in SHAPES:
        for dtype in DTYPES:
            try:
                yield _read(build(shape, device, dtype, end=None))
            except torch.OutOfMemoryError:
                name = f"{shape.name}, {dtype}".replace("torch.", "")
                yield Finding("reading", name, None, {"left out": "more memory than there is"})
            gc.collect()
            torch.cuda.empty_cache()
    yield _read(build(QWEN_15B, device, torch.bfloat16, end=None), compile_trunk=True)


def _read(loaded: LoadedModel, *, compile_trunk: bool = False) -> Finding:
    name = f"{loaded.name}, {loaded.dtype}" + (", compiled" if compile_trunk else "")
    name = name.replace("torch.", "")
    allowed = allowed_gap(loaded.dtype, loaded.model.config.num_hidden_layers)
    noise = _noise(loaded)
    try:
        reader = make_reader(loaded, compile_trunk=compile_trunk)
    except ModelError as error:
        return Finding("reading", name, False, {"refused": str(error)})
    found = _packed_gap(loaded, reader)
    facts = {"batched against alone": noise, "packed against alone": found, "allowed": allowed}
    holds = reader.packed and max(noise, found) <= allowed
    return Finding("reading", name, holds, {**facts, "packed": reader.packed})


@torch.inference_mode()
def _noise(loaded: LoadedModel) -> float:
    """The model's own logits for two rows at once, against each row alone: rounding alone."""
    ids = torch.randint(3, 1000, (2, PROMPT), device=loaded.device)
    together = loaded.model(input_ids=ids, use_cache=False).logits
    alone = [loaded.model(input_ids=row[None], use_cache=False).logits[0] for row in ids]
    return max(gap(one, other) for one, other in zip(together, alone, strict=True))


@torch.inference_mode()
def _packed_gap(loaded: LoadedModel, reader: Reader) -> float:
    """Logits from a ragged pack against the whole model, each response on its own."""
    generator = torch.Generator().manual_seed(0)
    prompt, *responses = (
        torch.randint(3, 1000, (length,), generator=generator).tolist()
        for length in (PROMPT, *RESPONSES)
    )
    pack = build_pack([prompt] * len(responses), [[*r, 0] for r in responses])
    hidden = reader.trunk(pack)
    worst = 0.0
    for lane, response in zip(pack.lanes, responses, strict=True):
        rows = torch.from_numpy(lane.rows[PROMPT:]).to(hidden.device)
        ids = torch.tensor([[*prompt, *response]], device=loaded.device)
        alone = loaded.model(input_ids=ids, use_cache=False).logits[0, PROMPT:]
        worst = max(worst, gap(reader.head.logits(hidden[rows]), alone))
    return worst


def check_refusals(device: torch.device) -> Iterator[Finding]:
    """Models made wrong on purpose, in half precision, where noise could hide a mistake."""
    mistakes: dict[str, tuple[Callable[[LoadedModel], None], str]] = {
        "reads ahead": (_read_ahead, "refused"),
        "mixes lanes": (_mix_lanes, "padded"),
        "misplaces positions": (_misplace, "padded"),
        "nothing wrong": (lambda _: None, "packed"),
    }
    for name, (spoil, expected) in mistakes.items():
        loaded = build(QWEN_15B, device, torch.bfloat16, end=None)
        spoil(loaded)
        try:
            outcome = "packed" if make_reader(loaded).packed else "padded"
        except ModelError:
            outcome = "refused"
        yield Finding("refusing", name, outcome == expected, {"outcome": outcome})
        del loaded
        gc.collect()


def _wrap(module: Any, change: Callable[[Any], Any]) -> None:
    inner = module.forward

    def forward(hidden: Any, *args: Any, **options: Any) -> Any:
        return inner(change(hidden), *args, **options)

    module.forward = forward


def _read_ahead(loaded: LoadedModel) -> None:
    """Each token takes from the one behind it."""
    _wrap(
        find_decoder(loaded).layers[0],
        lambda hidden: hidden + 0.5 * torch.nn.functional.pad(hidden, (0, 0, 0, 1))[:, 1:],
    )


def _mix_lanes(loaded: LoadedModel) -> None:
    """Each token takes from the one before it, which in a pack may be of another lane."""
    _wrap(
        find_decoder(loaded).layers[0],
        lambda hidden: hidden + 0.5 * torch.nn.functional.pad(hidden, (0, 0, 1, 0))[:, :-1],
    )


def _misplace(loaded: LoadedModel) -> None:
    """Positions that are handed over count from the start of the pack."""
    decoder = find_decoder(loaded)
    inner = decoder.forward

    def forward(*args: Any, position_ids: Any = None, **options: Any) -> Any:
        if position_ids is not None:
            position_ids = torch.arange(position_ids.shape[1], device=position_ids.device)[None]
        return inner(*args, position_ids=position_ids, **options)

    decoder.forward = forward
