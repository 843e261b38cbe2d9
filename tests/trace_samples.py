"""Small tokenizers and randomly initialised models, and a plain float64 way to trace with them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from divtok.records import Sampling, Trajectory

SPECIAL_TOKENS = ["<|pad|>", "<|end|>", "<|start|>"]
CORPUS = [
    "We add 12 and 30 to get 42, so the answer is \\boxed{42}.",
    "First multiply 7 by 8, then subtract 6. That gives \\boxed{50}.",
    "Half of the apples are green; the other half are red.",
]

VISION = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}
ARCHITECTURES = (
    "qwen2",
    "qwen3",
    "llama",
    "mistral",
    "phi3",
    "smollm3",
    "gemma2",
    "gemma3_text",
    "gemma3",
    "cohere",
    "granite",
    "gpt2",
)


def trajectory(key: str, prompt: Any, tokens: Any, text: str = "") -> Trajectory:
    return Trajectory(
        key=key,
        problem_id="1",
        benchmark="b",
        sample=0,
        generator="g",
        prompt_ids=tuple(prompt),
        token_ids=tuple(tokens),
        text=text,
        finish_reason="stop",
        protocol="cot",
        sampling=Sampling(),
    )


def byte_level_tokenizer(extra: tuple[str, ...] = ()) -> Any:
    """A byte-level BPE tokenizer: any text round-trips, rare characters as single bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(CORPUS, trainer)
    backend.add_special_tokens(list(extra))
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|end|>", pad_token="<|pad|>", bos_token="<|start|>"
    )


def tiny_config(architecture: str, vocab_size: int, width: int) -> Any:
    """A config whose random weights give distributions with contrast, not near-uniform ones."""
    from transformers import AutoConfig

    text: dict[str, Any] = {
        "vocab_size": vocab_size,
        "hidden_size": width,
        "intermediate_size": width,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": width // 2,
        "max_position_embeddings": 64,
        "initializer_range": 0.3,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "bos_token_id": 2,
    }
    if architecture == "gemma2":
        text |= {"final_logit_softcapping": 3.0, "sliding_window": 8}
    if architecture in ("gemma3", "gemma3_text"):
        text |= {"sliding_window": 8, "query_pre_attn_scalar": width // 2}
    if architecture in ("mistral", "phi3"):
        text |= {"sliding_window": 8}
    if architecture == "cohere":
        text |= {"logit_scale": 0.25}
    if architecture == "granite":
        text |= {"logits_scaling": 3.0}
    if architecture == "gpt2":
        text = {k: text[k] for k in ("vocab_size", "initializer_range", "eos_token_id")}
        text |= {"n_embd": width, "n_layer": 2, "n_head": 2, "n_positions": 64, "bos_token_id": 2}
    if architecture == "gemma3":
        return AutoConfig.for_model(
            "gemma3", text_config=text, vision_config=VISION, mm_tokens_per_image=4
        )
    return AutoConfig.for_model(architecture, **text)


def tiny_model(architecture: str, vocab_size: int, width: int = 32, seed: int = 0) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(tiny_config(architecture, vocab_size, width))
    return model.float().eval()


def _softmax(logits: np.ndarray) -> np.ndarray:
    wide = logits.astype(np.longdouble)
    weights = np.exp(wide - wide.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def naive_total_variation(p_logits: np.ndarray, q_logits: np.ndarray) -> np.ndarray:
    """The definition, half the sum of |P - Q|, in extended precision on whole logits."""
    difference = np.abs(_softmax(p_logits) - _softmax(q_logits))
    return (difference.sum(axis=-1) / 2).astype(np.float64)


def naive_jsd_bits(p_logits: np.ndarray, q_logits: np.ndarray) -> np.ndarray:
    """The definition, H(M) - (H(P) + H(Q)) / 2, in extended precision on whole logits."""

    def entropy(p: np.ndarray) -> np.ndarray:
        return -(p * np.log2(np.where(p > 0, p, 1))).sum(axis=-1)

    p, q = _softmax(p_logits), _softmax(q_logits)
    return (entropy((p + q) / 2) - (entropy(p) + entropy(q)) / 2).astype(np.float64)


@dataclass
class SavedPair:
    """Two saved models of one architecture with unequal widths, and the models themselves."""

    p_dir: Path
    q_dir: Path
    p: Any
    q: Any
    tokenizer: Any
    width: int
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def ids(self, count: int) -> list[int]:
        return [int(i) for i in self.rng.integers(3, len(self.tokenizer), count)]

    def naive_logits(self, prompt: list[int], response: list[int]) -> list[np.ndarray]:
        """float64 logits [T, V] of p and q that predict the response, cut to the shared width."""
        import torch

        start = len(prompt) - 1
        with torch.no_grad():
            return [
                model(torch.tensor([prompt + response]))
                .logits[0, start:-1, : self.width]
                .double()
                .numpy()
                for model in (self.p, self.q)
            ]


def save_pair(folder: Path, architecture: str) -> SavedPair:
    tokenizer = byte_level_tokenizer()
    vocab_p, vocab_q = len(tokenizer) + 21, len(tokenizer) + 5
    p = tiny_model(architecture, vocab_p, width=48, seed=1)
    q = tiny_model(architecture, vocab_q, width=32, seed=2)
    for name, model in (("p", p), ("q", q)):
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return SavedPair(folder / "p", folder / "q", p, q, tokenizer, vocab_q)


class LetterTokenizer:
    """One token for each letter, in order; just enough of a tokenizer for tracing."""

    eos_token_id = None

    def __init__(self, letters: str) -> None:
        self.letters = letters

    def get_vocab(self) -> dict[str, int]:
        return {letter: index for index, letter in enumerate(self.letters)}

    def decode(self, token_ids: Any, skip_special_tokens: bool = False, **_: Any) -> str:
        return "".join(self.letters[i] for i in token_ids)

    def __len__(self) -> int:
        return len(self.letters)


def bigram_reader(name: str, table: Any, letters: str, context_length: int | None = None) -> Any:
    """A reader with known logits: those for the token after token i are row i of the table."""
    import torch

    from divtok.packed.parts import Head
    from divtok.trace.reader import Reader

    logits = torch.as_tensor(table, dtype=torch.float32)

    def trunk(pack: Any, sinks: Any = ()) -> Any:
        return logits[torch.from_numpy(pack.ids)]

    return Reader(
        name=name,
        tokenizer=LetterTokenizer(letters),
        trunk=trunk,
        # The hidden states are the logits; a product with the unit matrix would turn inf into NaN
        # everywhere, which is what a real head does with a broken hidden state.
        head=Head(torch.eye(logits.shape[1])),
        context_length=context_length,
        end_ids=frozenset(),
        device=torch.device("cpu"),
        dtype=torch.float32,
    )
