"""Telling that memory ran out from everything else that can go wrong with tensors."""

from __future__ import annotations

# Where memory runs out in ways that have no exception of their own.
_SIGNS = ("DefaultCPUAllocator", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether torch or Python could not get the memory it asked for."""
    import torch

    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _SIGNS)
