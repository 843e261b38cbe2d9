"""How many threads a model that writes on a CPU is given."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# Hidden states up to this width: a step is over sooner than a second thread has begun to help.
NARROW = 256


@contextmanager
def threads_for(device: torch.device, width: int | None) -> Generator[None]:
    """Within, one thread for a narrow model on a CPU; anything else has torch's own number.

    A second thread makes writing with such a model up to 1.4 times as fast on an idle machine and
    twenty times as slow beside another busy process, since each waits for the other at every
    operation. Where both wait asleep (`models.waiting`) it is still no help: a step is too short.
    """
    import torch

    threads = torch.get_num_threads()
    if device.type != "cpu" or width is None or width > NARROW or threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
