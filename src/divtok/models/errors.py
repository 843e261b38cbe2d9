"""What can go wrong while transformers reads a model, told in one line with the next step.

Knows the many exceptions of the libraries that read models; loads nothing itself.
"""

from __future__ import annotations

import importlib.util
import os
import textwrap
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from divtok.errors import MissingExtraError, ModelError
from divtok.models.waiting import wait_asleep


def need_module(module: str, extra: str, *, purpose: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise MissingExtraError(module, extra, purpose=purpose)


def need_transformers() -> None:
    for module in ("torch", "transformers"):
        need_module(module, "models", purpose="Running a model")
    wait_asleep()
    # For some architectures it would fetch and run code from the hub where the package `kernels` is
    # installed, without being asked.
    os.environ.setdefault("USE_HUB_KERNELS", "NO")


@contextmanager
def reading(what: str, *, next_step: str) -> Generator[None]:
    """Turns the many ways in which reading `what` can fail into one line with the next step."""
    from huggingface_hub.errors import StrictDataclassError
    from safetensors import SafetensorError

    try:
        yield
    except (
        StrictDataclassError,
        OSError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        ImportError,
        RuntimeError,
        SafetensorError,
    ) as error:
        cause = textwrap.shorten(str(error), 200, placeholder=" ...") or type(error).__name__
        raise ModelError(f"{what} cannot be read ({cause}).", next_step=next_step) from error


@contextmanager
def quiet() -> Generator[None]:
    """Without transformers' own progress bar: the stages report theirs."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def check_complete(ref: str, report: Mapping[str, Any]) -> None:
    """Refuse a model whose weights transformers would fill in with random numbers."""
    missing = sorted(report["missing_keys"])
    wrong = sorted(str(key) for key in report["mismatched_keys"])
    if missing or wrong:
        named = ", ".join((missing + wrong)[:3])
        raise ModelError(
            f"The model '{ref}' is incomplete: {len(missing) + len(wrong)} of its weights are "
            f"missing or of another shape ({named}).",
            next_step="Fetch it again, or check that its configuration belongs to these weights.",
        )
