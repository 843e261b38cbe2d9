"""How much is read at once, and giving way when memory runs out."""

from __future__ import annotations

from dataclasses import dataclass

from divtok.errors import UsageError

DEFAULT_TOKENS = 8192
_SMALLEST_WORKSPACE = 1 << 20


@dataclass(slots=True)
class Budget:
    """What tracing may hold at once. It shrinks when memory runs out, and stays small.

    `tokens` go through a trunk together; one response that is longer is still read whole.
    `workspace_bytes` are for the logits of a chunk of positions; None is the device's default.
    """

    tokens: int = DEFAULT_TOKENS
    workspace_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.tokens < 1 or (self.workspace_bytes is not None and self.workspace_bytes < 1):
            raise UsageError(f"A budget must be positive: {self}.")

    def shrink(self, *, tokens: int, responses: int, workspace_bytes: int) -> str | None:
        """Halve the batch, then the workspace; says what was done, None when nothing is left.

        The arguments are what was just tried.
        """
        if responses > 1:
            self.tokens = max(1, tokens // 2)
            return f"reading at most {self.tokens:,} tokens at once from here on"
        if workspace_bytes > _SMALLEST_WORKSPACE:
            self.workspace_bytes = max(_SMALLEST_WORKSPACE, workspace_bytes // 2)
            return f"holding at most {self.workspace_bytes / 1e6:,.0f} MB of logits from here on"
        return None
