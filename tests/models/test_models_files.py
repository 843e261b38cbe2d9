"""What of a model's folder is read: safetensors and nothing else, and no code that it names."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from divtok.errors import ModelError, StoreError
from divtok.models import digests
from divtok.models.files import check_settings, weight_map
from divtok.models.load import load_model, load_tokenizer, model_digest
from divtok.models.packaged import resolve_model
from divtok.store.run import Run
from divtok.store.sections import check_section

torch = pytest.importorskip("torch")

COMMIT = "a" * 40


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a packaged model, in a process that cannot read a pickle."""

    def unpickle(*_: Any, **__: Any) -> None:
        raise AssertionError("a pickle was read")

    monkeypatch.setattr(torch, "load", unpickle)
    monkeypatch.setenv("DIVTOK_CACHE", str(tmp_path / "cache"))
    copy = tmp_path / "model"
    shutil.copytree(resolve_model("divtok/tiny-0.3m"), copy)
    return copy


def set_config(folder: Path, **settings: Any) -> None:
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | settings))


def shard(folder: Path, name: str) -> None:
    """The model's weights under another name, which an index gives."""
    from safetensors import safe_open

    (folder / "model.safetensors").rename(folder / "weights.safetensors")
    with safe_open(folder / "weights.safetensors", framework="pt") as weights:
        names = list(weights.keys())
    index = {"metadata": {}, "weight_map": dict.fromkeys(names, name)}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


# Weights


def test_weights_in_shards_are_read(folder: Path) -> None:
    shard(folder, "weights.safetensors")
    assert load_model(str(folder), device="cpu").name == str(folder)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "weights.pt", "weights"])
def test_an_index_cannot_name_pickled_weights(folder: Path, name: str) -> None:
    shard(folder, name)
    torch.save({}, folder / name)
    with pytest.raises(ModelError, match=rf"names the file '{name}'.*safetensors files in"):
        load_model(str(folder), device="cpu")


@pytest.mark.parametrize("up", ["../", "sub/", "", "..\\", "C:"])
def test_an_index_cannot_lead_out_of_the_folder(folder: Path, up: str) -> None:
    elsewhere = folder.parent / "weights.safetensors"
    name = f"{up}weights.safetensors" if up else str(elsewhere)
    shard(folder, name)
    shutil.copy(folder / "weights.safetensors", elsewhere)
    with pytest.raises(ModelError, match="in the model's own folder only"):
        load_model(str(folder), device="cpu")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"weight_map": {}}', "[" * 100_000])
def test_a_broken_index_is_told(folder: Path, content: str) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(content)
    with pytest.raises(ModelError, match=r"index\.json of .* cannot be read"):
        load_model(str(folder), device="cpu")


def test_a_missing_shard_is_named(folder: Path) -> None:
    shard(folder, "other.safetensors")
    with pytest.raises(ModelError, match=r"lacks the file other\.safetensors"):
        load_model(str(folder), device="cpu")


def test_pickled_weights_alone_are_no_model(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="from safetensors only"):
        load_model(str(folder), device="cpu")


def test_a_pickle_under_a_safe_name_is_not_read(folder: Path) -> None:
    torch.save({}, folder / "model.safetensors")
    with pytest.raises(ModelError, match="cannot be read"):
        load_model(str(folder), device="cpu")


def test_an_adapter_is_refused_with_what_to_do(folder: Path) -> None:
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "else/where"}')
    with pytest.raises(ModelError, match=r"is an adapter.*Merge it"):
        load_model(str(folder), device="cpu")


def test_a_distributed_checkpoint_is_refused(folder: Path) -> None:
    shutil.copy(
        folder / "model.safetensors", folder / "shard-00001-model-00001-of-00001.safetensors"
    )
    with pytest.raises(ModelError, match="distributed checkpoint"):
        load_model(str(folder), device="cpu")


def test_a_config_cannot_name_its_weights(folder: Path) -> None:
    set_config(folder, transformers_weights="adapter_model.bin")
    with pytest.raises(ModelError, match="names its own file of weights"):
        load_model(str(folder), device="cpu")


def test_hub_models_are_checked_at_one_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the hub: its cache is a folder of folders that are named by commits."""
    snapshot = tmp_path / COMMIT
    shutil.copytree(resolve_model("divtok/tiny-0.3m"), snapshot)
    asked: list[tuple[str, str | None]] = []

    def cached_file(place: str, name: str, revision: str | None = None, **_: Any) -> str | None:
        asked.append((name, revision))
        return str(snapshot / name) if (snapshot / name).is_file() else None

    monkeypatch.setattr("transformers.utils.hub.cached_file", cached_file)
    assert model_digest("some/model") == f"some/model@{COMMIT}"
    assert model_digest("some/model", revision="b" * 40) == f"some/model@{'b' * 40}"
    assert weight_map("some/model", "some/model", COMMIT) is None
    assert asked == [
        ("config.json", None),
        ("adapter_config.json", COMMIT),
        ("model.safetensors", COMMIT),
    ]
    shard(snapshot, "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"names the file 'pytorch_model\.bin'"):
        weight_map("some/model", "some/model", COMMIT)


# Code


@pytest.mark.parametrize(
    "settings",
    [
        {"attn_implementation": "org/kernel"},
        {"_attn_implementation": "org/kernel@main:attend"},
        {"_attn_implementation_internal": "org/kernel"},
        {"attn_implementation": {"": "sdpa", "text_config": "org/kernel"}},
        {"attn_implementation": "paged|org/kernel"},
        {"attn_implementation": "flash_attention_2"},
        {"experts_implementation": "org/kernel"},
        {"text_config": {"attn_implementation": "org/kernel"}},
    ],
)
def test_a_config_cannot_name_a_kernel(folder: Path, settings: dict[str, Any]) -> None:
    set_config(folder, **settings)
    with pytest.raises(ModelError, match=r"code from elsewhere \((attn|experts)_implementation: "):
        load_model(str(folder), device="cpu")


@pytest.mark.parametrize("name", ["eager", "sdpa", None])
def test_a_config_may_choose_torchs_own_attention(folder: Path, name: str | None) -> None:
    set_config(folder, attn_implementation=name)
    load_model(str(folder), device="cpu")


def test_code_of_a_model_is_not_run(folder: Path) -> None:
    set_config(folder, auto_map={"AutoModelForCausalLM": "modeling.Model"})
    with pytest.raises(ModelError, match=r"brings its own code \(auto_map\)"):
        load_model(str(folder), device="cpu")


def test_code_of_a_tokenizer_is_not_run(folder: Path) -> None:
    settings = folder / "tokenizer_config.json"
    changed = json.loads(settings.read_text()) | {"auto_map": {"AutoTokenizer": ["t.T", None]}}
    settings.write_text(json.dumps(changed))
    with pytest.raises(ModelError, match=r"brings its own code \(auto_map\)"):
        load_tokenizer(str(folder))


@pytest.mark.parametrize(
    ("code", "revision", "named"),
    [
        ("modeling.Model", None, "no commit is pinned"),
        ("modeling.Model", "main", "no commit is pinned"),
        ("else/where--modeling.Model", COMMIT, "takes its code from elsewhere"),
        (["else/where--modeling.Model", None], COMMIT, "takes its code from elsewhere"),
    ],
)
def test_trusted_code_is_that_of_one_commit(code: Any, revision: str | None, named: str) -> None:
    settings = {"auto_map": {"AutoModel": code}}
    with pytest.raises(ModelError, match=named):
        check_settings("some/model", "some/model", settings, revision, True)


def test_trusted_code_of_a_pinned_commit_passes() -> None:
    for code in ("modeling.Model", "some/model--modeling.Model"):
        settings = {"auto_map": {"AutoModel": code}}
        check_settings("some/model", "some/model", settings, COMMIT, True)


@pytest.mark.parametrize("chosen", [None, "YES"])
def test_kernels_of_the_hub_are_used_only_where_the_user_says_so(
    chosen: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("USE_HUB_KERNELS", raising=False)
    if chosen is not None:
        monkeypatch.setenv("USE_HUB_KERNELS", chosen)
    load_tokenizer("divtok/tiny-0.3m")
    assert os.environ["USE_HUB_KERNELS"] == (chosen or "NO")


# Digests


def test_every_file_that_takes_part_is_in_the_digest(folder: Path) -> None:
    before = model_digest(str(folder))
    (folder / "README.md").write_text("words")
    (folder / "checkpoint-100").mkdir()
    (folder / "checkpoint-100" / "model.safetensors").write_text("another model")
    (folder / "more").mkdir()
    assert model_digest(str(folder)) == before
    for name in (
        "more/tools.jinja",
        "more/code.py",
        "merges.txt",
        "vocab.txt",
        "tokenizer.model",
        "chat_template.jinja",
        "model.py",
    ):
        (folder / name).write_text("new")
        now = model_digest(str(folder))
        assert now != before, name
        before = now
    weights = folder / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    assert model_digest(str(folder)) != before


def test_a_byte_in_the_middle_of_a_large_file_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which runs of earlier versions, that read the ends alone, do not tell."""
    monkeypatch.setenv("DIVTOK_CACHE", str(tmp_path / "cache"))
    found: list[tuple[str, str]] = []
    for position in (0, 10 << 20):
        place = tmp_path / str(position)
        place.mkdir()
        with (place / "model.safetensors").open("wb") as file:
            file.truncate(20 << 20)
            file.seek(10 << 20)
            file.write(bytes([position > 0]))
        digest = model_digest(str(place))
        found.append((digest, digest.earlier()))
    (now, earlier), (other, same) = found
    assert now != other
    assert now.startswith("sha256:")
    assert earlier == same
    assert model_digest(str(place)).matches(earlier)
    assert not model_digest(str(place)).matches(now)


def test_a_large_file_is_read_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "_REMEMBERED_FROM", 1000)
    first = model_digest(str(folder))
    opened: list[str] = []
    read = Path.open

    def watched(path: Path, mode: str = "r", *args: Any, **options: Any) -> Any:
        if mode == "rb" and path.is_relative_to(folder):
            opened.append(path.name)
        return read(path, mode, *args, **options)

    monkeypatch.setattr(Path, "open", watched)
    assert model_digest(str(folder)) == first
    assert "model.safetensors" not in opened

    weights = folder / "model.safetensors"
    times = weights.stat()
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    os.utime(weights, ns=(times.st_atime_ns, times.st_mtime_ns))  # as if nothing had been done
    opened.clear()
    assert model_digest(str(folder)) != first
    assert "model.safetensors" in opened


def test_a_cache_that_cannot_be_written_is_done_without(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "_REMEMBERED_FROM", 1)
    expected = model_digest(str(folder))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DIVTOK_CACHE", str(tmp_path / "file"))
    assert model_digest(str(folder)) == expected


def test_a_run_of_an_earlier_version_goes_on_with_the_same_weights_only(
    folder: Path, tmp_path: Path
) -> None:
    run = Run.create_or_open(tmp_path / "run")
    digest = model_digest(str(folder))
    with run.lock():
        run.write_manifest({"generate": {"models": {"m": digest.earlier()}, "seed": 1}})
        check_section(run, ["a row"], "generate", {"models": {"m": digest}, "seed": 1})
        set_config(folder, tie_word_embeddings=True, note="other")
        other = model_digest(str(folder))
        with pytest.raises(StoreError, match=r"models\.m"):
            check_section(run, ["a row"], "generate", {"models": {"m": other}, "seed": 1})
        # Where no row is stored there is nothing to keep to.
        check_section(run, [], "generate", {"models": {"m": digest}, "seed": 1})
    assert run.manifest() == {"generate": {"models": {"m": str(digest)}, "seed": 1}}
