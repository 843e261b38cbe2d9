"""A step of a model as a CUDA graph: recorded once, and then replayed."""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakMethod, WeakSet

from divtok.memory import is_out_of_memory

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# Models of which no step can be recorded, and those whose steps ask the device for no number; a
# model is known by itself, and forgotten with it.
unrecordable: WeakSet[Any] = WeakSet()
_waits_for_nothing: WeakSet[Any] = WeakSet()


class Recorded:
    """A step that is recorded once and then replayed, as a CUDA graph.

    A small step is over before Python has started the next kernel, so that a GPU would mostly wait.
    What a step reads and writes must stay where it was when it was recorded; if not, `forget`.

    `step` is a method of whoever keeps this. It is not kept alive from here: the two, with all that
    lies in the stores of keys and values, would otherwise wait for Python to find their circle.
    """

    def __init__(self, step: Callable[[Tensor], Tensor], model: Any, device: torch.device) -> None:
        self._method, self._model, self._device = WeakMethod(step), model, device
        self._graph: torch.cuda.CUDAGraph | None = None
        self._tried = False
        self._tokens: Tensor
        self._result: Tensor

    def __call__(self, tokens: Tensor) -> Tensor:
        if not self._tried:
            self._tried = True
            return self._first(tokens)
        if self._model in unrecordable:
            return self._step(tokens)
        if self._graph is None:
            self._graph = self._record(tokens)
            if self._graph is None:
                return self._step(tokens)
        self._tokens.copy_(tokens)
        self._graph.replay()
        return self._result

    def _step(self, tokens: Tensor) -> Tensor:
        step = self._method()
        assert step is not None
        return step(tokens)

    def forget(self) -> None:
        self._graph = None

    def _first(self, tokens: Tensor) -> Tensor:
        """A step as usual, which sets up what kernels need, and shows whether it can be recorded.

        It cannot where the model asks the device for a number in the middle of a step, or lies on
        several devices.
        """
        import torch

        if self._model in _waits_for_nothing:
            return self._step(tokens)
        if len({weight.device for weight in self._model.parameters()}) > 1:
            unrecordable.add(self._model)
            return self._step(tokens)
        before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")
        try:
            result = self._step(tokens)
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            unrecordable.add(self._model)
        else:
            _waits_for_nothing.add(self._model)
            return result
        finally:
            torch.cuda.set_sync_debug_mode(before)
        return self._step(tokens)  # again, which writes the same in the same places

    def _record(self, tokens: Tensor) -> torch.cuda.CUDAGraph | None:
        """The graph of a step; None where the device refuses to record it after all."""
        import torch

        self._tokens = tokens.clone()
        graph = torch.cuda.CUDAGraph()
        usual = torch.cuda.current_stream(self._device)
        try:
            # The outer one brings the usual stream back, which a recording that fails does not.
            with (
                torch.cuda.device(self._device),
                torch.cuda.stream(usual),
                _without_collection(),
            ):
                stream = torch.cuda.Stream(self._device)
                with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                    self._result = self._step(self._tokens)
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            unrecordable.add(self._model)
            return None
        return graph


@contextmanager
def _without_collection() -> Generator[None]:
    """No garbage is collected within: an old graph in it, once freed, would spoil the recording."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()
