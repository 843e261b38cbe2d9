"""The copy while it learns: trunk and head as for reading, but with gradients.

Its weights are float32 whatever the model's are; in half precision only products are computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from divtok.models.load import LoadedModel
from divtok.packed.attention import LaneAttention
from divtok.packed.decoder import PackedDecoder
from divtok.packed.packs import Pack
from divtok.packed.parts import Head, find_decoder, find_head
from divtok.trace.reader import Reader, make_reader, predicting

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Student:
    """A model in float32 whose trunk and head learn. `number` is what its products are in."""

    loaded: LoadedModel
    reader: Reader
    decoder: Any
    head: Head
    parameters: Sequence[Tensor]
    number: torch.dtype

    @classmethod
    def of(cls, loaded: LoadedModel, number: torch.dtype) -> Student:
        """A loaded model as one that learns; whatever is beside trunk and head stays as it is."""
        reader, decoder = make_reader(loaded), find_decoder(loaded)
        layer, head = loaded.model.get_output_embeddings(), find_head(loaded)
        own = [layer.weight] if head.bias is None else [layer.weight, layer.bias]
        # A head that is the embedding is one weight, and is here once.
        parameters = list({id(each): each for each in [*decoder.parameters(), *own]}.values())
        for each in parameters:
            each.requires_grad_(True)
        head = Head(layer.weight, getattr(layer, "bias", None), head.softcap, head.scale)
        return cls(loaded, reader, decoder, head, parameters, number)

    @property
    def width(self) -> int:
        """How many numbers a hidden state has."""
        return int(self.head.weight.shape[1])

    def states(self, pack: Pack) -> Tensor:
        """Hidden states [sum T, D] that predict the response tokens, with gradients."""
        trunk = self._packed if self.reader.packed else self.reader.trunk
        return predicting(trunk(pack), pack)

    def logits(self, hidden: Tensor) -> Tensor:
        """As `Head.logits`, in a way that gradients can go back."""
        import torch

        products = torch.nn.functional.linear(hidden, self.head.weight, self.head.bias)
        if products.dtype in (torch.bfloat16, torch.float16):
            products = products.float()
        if self.head.scale != 1.0:
            products = products * self.head.scale
        if self.head.softcap is not None:
            products = (products / self.head.softcap).tanh() * self.head.softcap
        return products

    def products(self) -> AbstractContextManager[Any]:
        """Within, products are computed in `number`."""
        import torch

        half = self.number != torch.float32
        return torch.autocast(self.reader.device.type, dtype=self.number, enabled=half)

    def round_to(self, stored: torch.dtype) -> None:
        """Make every weight a number of the format that it will be stored in."""
        for each in self.parameters:
            each.data.copy_(each.data.to(stored))

    def _packed(self, pack: Pack) -> Tensor:
        import torch

        lanes = LaneAttention(pack)

        def attend(
            layer: int,
            query: Tensor,
            key: Tensor,
            value: Tensor,
            *,
            scaling: float,
            window: int | None,
        ) -> Tensor:
            # Beside float32 weights, norms and positions turn half precision into float32 again.
            query, key = query.to(value.dtype), key.to(value.dtype)
            return lanes(layer, query, key, value, scaling=scaling, window=window)

        device = self.reader.device
        return PackedDecoder(self.decoder)(
            torch.from_numpy(pack.ids).to(device),
            torch.from_numpy(pack.positions).to(device),
            attend,
        )
