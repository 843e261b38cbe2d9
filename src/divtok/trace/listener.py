"""What may be learned from p's pass beside the trace, at the cost of no further pass.

A listener is given each pass when it is over. Attention chains and projected readings are listeners
in `divtok.evidence`; tracing knows none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from divtok.packed.packs import Indices, Pack
from divtok.records import Reason, Trace
from divtok.trace.batches import Row
from divtok.trace.reader import Reader
from divtok.trace.trunks import AttentionSink

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Passage:
    """One pass of p over the rows of a pack.

    `hidden` [N, D] belongs to every token of the pack, `states` [sum T, D] are those of them that
    predict the response tokens `targets` [sum T], row after row. `lanes` are the rows of `hidden`
    that hold each response behind its prompt; there is one for every row where a listener asked for
    whole packs.
    """

    reader: Reader
    rows: Sequence[Row]
    traces: Sequence[Trace]
    pack: Pack
    hidden: Tensor
    states: Tensor
    targets: Indices
    workspace_bytes: int

    @property
    def lanes(self) -> list[Indices]:
        return [lane.rows for lane in self.pack.lanes]


class Listener(Protocol):
    """Makes one record for every row of a pass. `whole` asks for packs with a lane for each."""

    whole: bool

    def sink(self, pack: Pack) -> AttentionSink | None:
        """Where the layers' queries and keys go during the pass; None where they are not needed."""
        ...

    def hear(self, passage: Passage, sink: AttentionSink | None) -> Sequence[Any]:
        """One record for each row; `sink` is None where p's attention cannot be seen."""
        ...

    def unread(self, trace: Trace, model: str) -> Any:
        """The record for a trajectory that was not read; its trace says why."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """What one pass of both models gave for one trajectory; `heard` has one record a listener."""

    trace: Trace
    heard: Sequence[Any] = ()


def unread_reason(trace: Trace) -> Reason:
    """Why nothing was learned about a trajectory whose trace has no numbers."""
    return Reason(trace.status, f"{trace.status}: {trace.reason}")
