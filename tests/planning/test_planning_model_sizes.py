"""Sizes of models: those on the list follow from their shapes, local ones from their own files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from planning_samples import write_model

import divtok
from divtok.errors import ModelError
from divtok.models.sizes import HUB_MODELS, ModelSize, find_model

# V, layers, heads, kv heads, width, feed-forward width, head width; tied output layer or not
QWEN25 = {
    "1.5B-Instruct": (151_936, 28, 12, 2, 1536, 8960, 128, True),
    "3B-Instruct": (151_936, 36, 16, 2, 2048, 11008, 128, True),
    "7B-Instruct": (152_064, 28, 28, 4, 3584, 18944, 128, False),
    "14B": (152_064, 48, 40, 8, 5120, 13824, 128, False),
    "32B-Instruct": (152_064, 64, 40, 8, 5120, 27648, 128, False),
    "72B-Instruct": (152_064, 80, 64, 8, 8192, 29568, 128, False),
}
QWEN3 = {
    "1.7B": (151_936, 28, 16, 8, 2048, 6144, 128, True),
    "4B-Instruct-2507": (151_936, 36, 32, 8, 2560, 9728, 128, True),
    "8B": (151_936, 36, 32, 8, 4096, 12288, 128, False),
    "14B-Base": (151_936, 40, 40, 8, 5120, 17408, 128, False),
    "32B": (151_936, 64, 64, 8, 5120, 25600, 128, False),
}
GEMMA3 = {
    "4b-it": (262_208, 34, 8, 4, 2560, 10240, 256),
    "12b-pt": (262_208, 48, 16, 8, 3840, 15360, 256),
    "27b-it": (262_208, 62, 32, 16, 5376, 21504, 128),
}
GEMMA3_VISION = 416_866_032
VISION_WIDTH = 1152


def attention(width: int, heads: int, kv_heads: int, head: int) -> int:
    return width * head * (2 * heads + 2 * kv_heads)


@pytest.mark.parametrize("size", QWEN25)
def test_sizes_of_qwen25_follow_from_its_shape(size: str) -> None:
    vocabulary, layers, heads, kv, width, inner, head, tied = QWEN25[size]
    biases = head * (heads + 2 * kv)
    layer = attention(width, heads, kv, head) + biases + 3 * width * inner + 2 * width
    active = layers * layer + width + vocabulary * width
    total = active if tied else active + vocabulary * width
    assert HUB_MODELS[f"Qwen/Qwen2.5-{size}"] == ModelSize(total, active, layers, kv * head)


@pytest.mark.parametrize("size", QWEN3)
def test_sizes_of_qwen3_follow_from_its_shape(size: str) -> None:
    vocabulary, layers, heads, kv, width, inner, head, tied = QWEN3[size]
    layer = attention(width, heads, kv, head) + 2 * head + 3 * width * inner + 2 * width
    active = layers * layer + width + vocabulary * width
    total = active if tied else active + vocabulary * width
    fact = HUB_MODELS[f"Qwen/Qwen3-{size}"]
    assert replace(fact, stored=None) == ModelSize(total, active, layers, kv * head)
    # Only the checkpoint of the 1.7B model repeats its tied output layer.
    assert fact.download_bytes == 2 * (total + (vocabulary * width if size == "1.7B" else 0))


def test_sizes_of_the_mixture_follow_from_its_shape() -> None:
    vocabulary, layers, width, experts, chosen, inner = 151_936, 48, 2048, 128, 8, 768
    shared = attention(width, 32, 4, 128) + 2 * 128 + width * experts + 2 * width
    expert = 3 * width * inner
    outer = width + vocabulary * width
    assert HUB_MODELS["Qwen/Qwen3-30B-A3B-Instruct-2507"] == ModelSize(
        layers * (shared + experts * expert) + outer + vocabulary * width,
        layers * (shared + chosen * expert) + outer,
        layers,
        4 * 128,
    )


@pytest.mark.parametrize("size", GEMMA3)
def test_sizes_of_gemma3_follow_from_its_shape(size: str) -> None:
    vocabulary, layers, heads, kv, width, inner, head = GEMMA3[size]
    layer = attention(width, heads, kv, head) + 2 * head + 3 * width * inner + 4 * width
    active = layers * layer + width + vocabulary * width
    total = active + GEMMA3_VISION + VISION_WIDTH * width + VISION_WIDTH
    # Every sixth layer sees everything, the others a window.
    windowed = layers - layers // 6
    assert HUB_MODELS[f"google/gemma-3-{size}"] == ModelSize(
        total, active, layers, kv * head, windowed, 1024
    )


def test_a_packaged_model_is_read_off_its_own_files() -> None:
    from safetensors import safe_open

    weights = Path(divtok.__file__).parent / "tiny" / "tiny-0.9m" / "model.safetensors"
    with safe_open(str(weights), framework="numpy") as file:
        total = sum(file.get_tensor(name).size for name in file.keys())  # noqa: SIM118
    found = find_model("divtok/tiny-0.9m")
    assert found.here
    # Its output layer is its embedding.
    assert found.size == ModelSize(total, total, 4, 64, trained_length=1024)


def test_a_local_folder_is_read_off_its_own_files(tmp_path: Path) -> None:
    shapes = {"model.embed_tokens.weight": [100, 32], "lm_head.weight": [100, 32], "w": [7]}
    write_model(tmp_path / "own", shapes, num_key_value_heads=2)
    found = find_model(str(tmp_path / "own"))
    assert found.here
    assert found.size == ModelSize(6_407, 3_207, 3, 16)


@pytest.mark.parametrize("content", [b"", b"\xff" * 8, b"\x05" + bytes(7) + b"{..}"])
def test_a_damaged_model_folder_is_named(tmp_path: Path, content: bytes) -> None:
    write_model(tmp_path / "own", {"w": [1]})
    (tmp_path / "own" / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelError, match=r"own.*cannot be read"):
        find_model(str(tmp_path / "own"))


def test_windowed_layers_keep_no_more_than_their_window() -> None:
    fact = ModelSize(1, 1, layers=6, kv_width=10, windowed=5, window=100)
    assert fact.cache_bytes(50) == 4 * 10 * 6 * 50
    assert fact.cache_bytes(1000) == 4 * 10 * (1000 + 5 * 100)
