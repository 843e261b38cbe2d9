"""Models for the planning tests that have a size and no weights."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any


def write_model(folder: Path, shapes: dict[str, list[int]], **config: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"num_hidden_layers": 3, "num_attention_heads": 4, "hidden_size": 32, **config}
    (folder / "config.json").write_text(json.dumps(settings))
    header = json.dumps({"__metadata__": {}, **{n: {"shape": s} for n, s in shapes.items()}})
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header.encode())
