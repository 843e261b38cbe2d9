"""A small process reward model in Skywork's layout, and its rewards written out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from trace_samples import byte_level_tokenizer, tiny_config

from divtok.evidence.prm import VALUE_BIAS, VALUE_WEIGHT, step_layout


@dataclass
class Saved:
    """A saved reward model, its backbone and its value head."""

    folder: Path
    backbone: Any
    weight: torch.Tensor
    bias: torch.Tensor
    tokenizer: Any

    def expected(self, question: str, response: str) -> np.ndarray:
        """One row alone through the backbone, the linear layer and the sigmoid, written out."""
        layout = step_layout(self.tokenizer, question, response)
        ids = torch.tensor([[*layout.prompt_ids, *layout.token_ids]])
        with torch.no_grad():
            hidden = self.backbone(input_ids=ids).last_hidden_state[0]
        places = [len(layout.prompt_ids) + place for place in layout.flagged]
        values = hidden[places] @ self.weight[0] + self.bias
        return (1 / (1 + torch.exp(-values))).numpy()


def save_prm(
    folder: Path,
    architecture: str = "qwen2",
    length: int = 256,
    rope_parameters: dict[str, Any] | None = None,
) -> Saved:
    from transformers import AutoModelForCausalLM

    tokenizer = byte_level_tokenizer()
    torch.manual_seed(3)
    config = tiny_config(architecture, len(tokenizer) + 7, 32)
    config.max_position_embeddings = length
    if rope_parameters is not None:
        config.rope_parameters = rope_parameters
    model = AutoModelForCausalLM.from_config(config).float().eval()
    weight, bias = torch.randn(1, 32), torch.randn(1)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    weights = load_file(folder / "model.safetensors")
    weights |= {VALUE_WEIGHT: weight, VALUE_BIAS: bias}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    settings = json.loads((folder / "config.json").read_text())
    settings["architectures"] = ["Qwen2ForPrmModel"]
    (folder / "config.json").write_text(json.dumps(settings))
    return Saved(folder, model.base_model, weight, bias, tokenizer)
