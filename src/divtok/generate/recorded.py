"""A step of a model as a CUDA graph: recorded once, and then replayed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from divtok.memory import is_out_of_memory

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# Models of which no step can be recorded; a model is known by itself, and forgotten with it.
unrecordable: WeakSet[Any] = WeakSet()


class Recorded:
    """A step that is recorded once and then replayed, as a CUDA graph.

    A small step is over before Python has started the next kernel, so that a GPU would mostly wait.
    What a step reads and writes must stay where it was when it was recorded; if not, `forget`.
    """

    def __init__(self, step: Callable[[Tensor], Tensor], model: Any, device: torch.device) -> None:
        self._step, self._model, self._device = step, model, device
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

    def forget(self) -> None:
        self._graph = None

    def _first(self, tokens: Tensor) -> Tensor:
        """A step as usual, which sets up what kernels need, and shows whether it can be recorded.

        It cannot where the model asks the device for a number in the middle of a step, or lies on
        several devices.
        """
        import torch

        if len({weight.device for weight in self._model.parameters()}) > 1:
            unrecordable.add(self._model)
            return self._step(tokens)
        before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")
        try:
            return self._step(tokens)
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            unrecordable.add(self._model)
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
            with torch.cuda.device(self._device), torch.cuda.stream(usual):
                stream = torch.cuda.Stream(self._device)
                with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                    self._result = self._step(self._tokens)
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            unrecordable.add(self._model)
            return None
        return graph
