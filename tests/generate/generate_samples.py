"""A small random chat model, saved like any other, quick to sample from, which does stop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from divtok.generate.jobs import Job
from divtok.records import Problem, Sampling

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
END_TOKEN = 2
CORPUS = [
    "Please reason step by step, and put your final answer within \\boxed{}.",
    "system user assistant",
    "Add 12 and 30, then take away 7.",
]
QUESTIONS = (
    "Add 1 and 2.",
    "Ada has 12 apples and finds 30 more of them. How many are there in the end?",
    "9?",
    "Take 7 from 30, then double it, and say what is left.",
    "How many?",
)


def chat_tokenizer() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(CORPUS, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.chat_template = CHATML
    return tokenizer


def save_chat_model(folder: Path) -> None:
    """Weights whose distributions have contrast, with an end token that comes up fairly often."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    tokenizer = chat_tokenizer()
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer) + 8,
            hidden_size=32,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=512,
            initializer_range=0.3,
            eos_token_id=END_TOKEN,
            pad_token_id=0,
            tie_word_embeddings=False,
        )
    )
    with torch.no_grad():
        model.lm_head.weight[END_TOKEN] *= 2.0
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


# By name: what is special about each model, beside the settings all of them share.
SMALL_MODELS: dict[str, dict[str, Any]] = {
    "Qwen2": {},
    "Llama": {"num_key_value_heads": 4},
    "Gemma3Text": {
        "sliding_window": 12,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "Phi3": {},
    # Keeps states of convolutions beside keys and values.
    "Lfm2": {"layer_types": ["conv", "full_attention", "conv"]},
}


def small_model(name: str, tokenizer: Any, *, ends_often: bool = True) -> Any:
    """A random model as LoadedModel, in float64, so that rounding moves no sampled token."""
    import torch
    import transformers

    from divtok.models.load import LoadedModel

    torch.manual_seed(1)
    config = getattr(transformers, f"{name}Config")(
        vocab_size=len(tokenizer) + 8,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        head_dim=8,
        max_position_embeddings=256,
        initializer_range=0.3,
        eos_token_id=END_TOKEN,
        pad_token_id=0,
        bos_token_id=1,
        **{"num_key_value_heads": 2, **SMALL_MODELS[name]},
    )
    kind = getattr(transformers, f"{name.removesuffix('Text')}ForCausalLM")
    model = kind(config).double().eval().requires_grad_(False)
    # Many end tokens make ends frequent, whatever the weights prefer.
    model.generation_config.eos_token_id = [END_TOKEN, *(range(40, 58) if ends_often else ())]
    return LoadedModel(name, None, model, tokenizer, torch.device("cpu"), torch.float64)


def jobs(sampling: Sampling, count: int = len(QUESTIONS)) -> list[Job]:
    return [
        Job(
            Problem(f"p{i}", "bench", QUESTIONS[i % len(QUESTIONS)], "1"), i, "gen", "cot", sampling
        )
        for i in range(count)
    ]
