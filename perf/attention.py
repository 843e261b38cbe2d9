"""What an attention chain costs in memory, beside the attention tensor it is chosen from.

    python -m perf.attention

One pass of a toy Qwen2 with random weights over one response, and its chain; a process of its own,
so that its peak is the pass's. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time

import numpy as np
import torch

from divtok.evidence.uqac.attention import AttentionLog
from divtok.evidence.uqac.chains import find_chain
from divtok.packed.packs import build_pack
from divtok.trace.trunks import packed_trunk

PROMPT = 64
ANSWER = 3
VOCABULARY = 256


def measure(tokens: int, layers: int, heads: int, head_width: int) -> dict[str, float]:
    """Peak memory above the weights, in bytes, and the full tensor's size in float32."""
    from transformers import Qwen2Config, Qwen2Model

    torch.manual_seed(0)
    width = heads * head_width
    model = Qwen2Model(
        Qwen2Config(
            vocab_size=VOCABULARY,
            hidden_size=width,
            intermediate_size=width,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=heads,
            max_position_embeddings=tokens,
        )
    ).eval()
    ids = np.random.default_rng(0).integers(0, VOCABULARY, tokens)
    pack = build_pack([ids[:PROMPT]], [ids[PROMPT:]], whole=True)
    before = _peak()
    began = time.monotonic()
    log = AttentionLog(pack)
    with torch.inference_mode():
        hidden = packed_trunk(model, torch.device("cpu"))(pack, [log])
        passed = time.monotonic()
        response = tokens - PROMPT
        answer = range(response - ANSWER - 1, response - 1)
        stops = np.zeros(response, dtype=bool)
        chain, _ = find_chain(log, pack.lanes[0].rows, hidden, answer=answer, stops=stops)
    full = 4 * layers * heads * response * tokens
    peak = _peak() - before
    return {
        "tokens": tokens,
        "layers": layers,
        "heads": heads,
        "head_width": head_width,
        "chain_length": len(chain),
        "full_bytes": full,
        "peak_bytes": peak,
        "share": peak / full,
        "pass_seconds": passed - began,
        "chain_seconds": time.monotonic() - passed,
    }


def _peak() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("tokens", 4096), ("layers", 24), ("heads", 16), ("head-width", 64)):
        parser.add_argument(f"--{name}", type=int, default=value)
    print(json.dumps(measure(**vars(parser.parse_args())), indent=2))
