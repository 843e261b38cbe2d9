"""GGUF files and the copies made of them: broken ones are told, and one copy serves all."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from gguf_samples import Sample, assert_same_model, copies, llama, write_gguf
from hypothesis import given, settings
from hypothesis import strategies as st

import divtok
from divtok.errors import MissingExtraError, ModelError
from divtok.models.gguf.cache import copy_folder
from divtok.models.load import load_model, load_tokenizer, model_digest, resolve_dtype

pytest.importorskip("gguf")
torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("gguf_cache")


# Files that are not whole


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"", "not a GGUF file"),
        (b"version https://git-lfs.github.com/spec/v1\n", "not a GGUF file"),
        (b"GGUF", "ends within its header"),
        (b"GGUF\x01\0\0\0" + bytes(16), "version 1"),
        (b"GGUF\0\0\0\x03" + bytes(16), "version 50331648"),
        (b"GGUF\x03\0\0\0" + bytes(16), "header.*damaged"),
    ],
)
def test_other_files_are_told_at_once(tmp_path: Path, content: bytes, named: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=named) as caught:
        load_tokenizer(str(path))
    assert caught.value.next_step


def test_a_file_that_lacks_its_end_is_cut_short(gguf_sample: Sample, tmp_path: Path) -> None:
    whole = gguf_sample.path.read_bytes()
    path = tmp_path / "m.gguf"
    path.write_bytes(whole[:-1000])
    with pytest.raises(ModelError, match=f"cut short: {len(whole) - 1000} bytes of") as caught:
        load_model(str(path), device="cpu")
    assert "Fetch it again" in str(caught.value)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_cut_of_the_header_is_a_model_error(gguf_sample: Sample, data: st.DataObject) -> None:
    from divtok.models.gguf.header import read_header

    header = read_header(gguf_sample.path)
    whole = gguf_sample.path.read_bytes()[: header.data_start - 32]
    cut = data.draw(st.integers(0, len(whole) - 1))
    with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
        file.write(whole[:cut])
        file.flush()
        with pytest.raises(ModelError):
            read_header(Path(file.name))


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_a_damaged_header_is_read_or_refused(gguf_sample: Sample, data: st.DataObject) -> None:
    from divtok.models.gguf.header import Header, read_header

    header = read_header(gguf_sample.path)
    damaged = bytearray(gguf_sample.path.read_bytes()[: header.data_start])
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
        file.write(damaged)
        file.flush()
        with contextlib.suppress(ModelError):  # and nothing else
            assert isinstance(read_header(Path(file.name)), Header)


# Which file a ref names


def test_a_folder_with_one_gguf_file_stands_for_it(gguf_sample: Sample, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    shutil.copy(gguf_sample.path, folder / "weights.gguf")
    assert_same_model(folder, gguf_sample.model)
    assert model_digest(str(folder)) == model_digest(str(gguf_sample.path))


def test_a_folder_with_several_gguf_files_asks_for_one(gguf_sample: Sample, tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        shutil.copy(gguf_sample.path, tmp_path / name)
    with pytest.raises(ModelError, match=r"holds 2 GGUF files.*a\.gguf"):
        load_model(str(tmp_path), device="cpu")


def test_safetensors_in_a_folder_go_before_gguf(gguf_sample: Sample, tmp_path: Path) -> None:
    other = llama(gguf_sample.model.config.vocab_size, attention_bias=True)
    other.save_pretrained(tmp_path)
    load_tokenizer(str(gguf_sample.path)).save_pretrained(tmp_path)
    shutil.copy(gguf_sample.path, tmp_path / "weights.gguf")
    assert load_model(str(tmp_path), device="cpu").model.config.attention_bias


@pytest.mark.parametrize("ref", ["/nowhere/m.gguf", "nowhere/m.gguf", "m.GGUF"])
def test_a_missing_file_is_named(ref: str) -> None:
    for use in (load_model, load_tokenizer, model_digest):
        with pytest.raises(ModelError, match=f"no GGUF file '{ref}'"):
            use(ref)


# The copy


def test_the_copy_is_made_once_and_then_read_without_the_package(
    gguf_sample: Sample, gguf_cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    load_tokenizer(str(gguf_sample.path))
    (copy,) = copies(gguf_cache)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "Converting sample.gguf" in said
    assert str(copy) in said

    find_spec = importlib.util.find_spec
    absent = ("gguf", "accelerate")
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in absent else find_spec(name)
    )
    assert_same_model(gguf_sample.path, gguf_sample.model)
    assert capsys.readouterr().err == ""
    assert copies(gguf_cache) == [copy]


@pytest.mark.parametrize("module", ["gguf", "accelerate"])
def test_a_missing_package_names_the_extra(
    gguf_sample: Sample, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == module else find_spec(name)
    )
    with pytest.raises(MissingExtraError, match=rf"'{module}'.*divtok\[gguf\]"):
        load_model(str(gguf_sample.path))


def test_another_content_gets_another_copy(tmp_path: Path, gguf_cache: Path) -> None:
    path = tmp_path / "m.gguf"
    for value in (1, 2):
        write_gguf(path, metadata={"tokenizer.ggml.eos_token_id": value})
        assert load_tokenizer(str(path)).eos_token_id == value
    assert len(copies(gguf_cache)) == 2


def test_the_digest_reads_the_file_alone(
    gguf_sample: Sample, tmp_path: Path, gguf_cache: Path
) -> None:
    digests = {model_digest(str(gguf_sample.path))}
    content = gguf_sample.path.read_bytes()
    for index, position in enumerate((30, len(content) // 2, len(content) - 1)):
        changed = bytearray(content)
        changed[position] ^= 1
        other = tmp_path / f"{index}.gguf"
        other.write_bytes(changed)
        digests.add(model_digest(str(other)))
    assert len(digests) == 4
    (tmp_path / "same.gguf").write_bytes(content)
    assert model_digest(str(tmp_path / "same.gguf")) == model_digest(str(gguf_sample.path))
    assert not gguf_cache.exists()


def test_a_large_file_is_known_by_every_byte(tmp_path: Path, gguf_cache: Path) -> None:
    from divtok.models.gguf.cache import gguf_digest

    large = 100 << 20
    digests: set[str] = set()
    for index, (size, position) in enumerate(
        [(large, None), (large, 5), (large, large // 2 + 12_345), (large + 1, None)]
    ):
        path = tmp_path / f"{index}.gguf"
        with path.open("wb") as file:  # a hole, not 200 megabytes
            file.truncate(size)
            if position is not None:
                file.seek(position)
                file.write(b"x")
        digests.add(gguf_digest(path))
    assert len(digests) == 4


def test_a_conversion_that_fails_leaves_nothing(
    gguf_sample: Sample, gguf_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import PreTrainedModel

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(PreTrainedModel, "save_pretrained", full)
        with pytest.raises(ModelError, match=r"No space left on device.*DIVTOK_CACHE"):
            load_model(str(gguf_sample.path), device="cpu")
    assert [path.suffix for path in (gguf_cache / "gguf").iterdir()] == [".lock"]
    assert_same_model(gguf_sample.path, gguf_sample.model)


def test_what_a_killed_process_left_is_cleared_away(gguf_sample: Sample, gguf_cache: Path) -> None:
    name = copy_folder(gguf_sample.path).name
    left = gguf_cache / "gguf" / f".{name}.part"
    left.mkdir(parents=True)
    (left / "config.json").write_text("{")
    assert_same_model(gguf_sample.path, gguf_sample.model)
    assert not left.exists()
    assert [path.name for path in copies(gguf_cache)] == [name]


def test_too_little_space_is_told_before_converting(
    gguf_sample: Sample, gguf_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")._replace(free=10_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(ModelError, match=r"needs 0\.1 GB.*0\.0 GB are free.*DIVTOK_CACHE"):
        load_model(str(gguf_sample.path), device="cpu")
    assert copies(gguf_cache) == []


def test_a_cache_that_is_no_folder_is_told(
    gguf_sample: Sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DIVTOK_CACHE", str(tmp_path / "file"))
    with pytest.raises(ModelError, match="cannot be stored in"):
        load_model(str(gguf_sample.path), device="cpu")


def test_a_damaged_copy_names_the_folder_to_remove(gguf_sample: Sample, gguf_cache: Path) -> None:
    load_tokenizer(str(gguf_sample.path))
    (copy,) = copies(gguf_cache)
    (copy / "model.safetensors").write_bytes(b"\0" * 20)
    with pytest.raises(ModelError, match=f"remove {copy}"):
        load_model(str(gguf_sample.path), device="cpu")


def test_the_cache_is_in_the_users_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    from divtok.models.gguf.cache import cache_folder

    monkeypatch.delenv("DIVTOK_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/divtok")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert cache_folder() == Path("/home/me/.cache/divtok")


def start_converting(path: Path, seconds: float) -> Any:
    """A process that asks for the copy, with a conversion that only takes its time."""
    code = f"""
import time
from pathlib import Path
from divtok.models.gguf import convert
def convert_slowly(header):
    time.sleep({seconds})
    return lambda folder: (folder / "config.json").write_text("whole")
convert.convert = convert_slowly
from divtok.models.gguf.cache import converted
assert (converted(Path({str(path)!r})) / "config.json").read_text() == "whole"
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(divtok.__file__).parents[1])}
    return subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stderr=subprocess.PIPE, text=True
    )


def test_of_several_processes_one_converts_and_the_others_wait(
    gguf_sample: Sample, gguf_cache: Path
) -> None:
    running = [start_converting(gguf_sample.path, 0.5) for _ in range(3)]
    said = "".join(process.communicate()[1] for process in running)
    assert [process.returncode for process in running] == [0, 0, 0]
    assert said.count("Converting") == 1
    assert len(copies(gguf_cache)) == 1


def test_when_the_converting_process_is_killed_a_waiting_one_takes_over(
    gguf_sample: Sample, gguf_cache: Path
) -> None:
    first = start_converting(gguf_sample.path, 60)
    assert "Converting" in first.stderr.readline()
    second = start_converting(gguf_sample.path, 0)
    assert "Waiting" in second.stderr.readline()
    assert copies(gguf_cache) == []
    first.kill()
    first.communicate()
    assert "Converting" in second.communicate()[1]
    assert second.returncode == 0
    assert len(copies(gguf_cache)) == 1


def test_auto_dtype_of_an_unconverted_file_needs_no_conversion_on_the_cpu(
    gguf_sample: Sample, gguf_cache: Path
) -> None:
    assert resolve_dtype(str(gguf_sample.path), device="cpu") == "float32"
    assert not gguf_cache.exists()
