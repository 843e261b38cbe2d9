"""Copies of GGUF models in safetensors, in a folder of the user's own.

A copy is made once for a file's content, in a folder beside its place that then takes its name,
so it is whole or not there; a second process waits for the first. Knows files, not models.
"""

from __future__ import annotations

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from divtok.errors import ModelError
from divtok.models.digests import CACHE_VARIABLE, cache_folder, file_digests
from divtok.models.errors import need_module, need_transformers
from divtok.models.gguf.header import Header, check_whole, read_header
from divtok.progress import say
from divtok.store.atomic import sync, sync_folder

# A part of a copy's name: one more where `convert` comes to write something else.
_FORMAT = 1
_MEGABYTE = 1 << 20
_NAME_LENGTH = 80
_BYTES_PER_WEIGHT = 4
_TOKENIZER_BYTES = 64 * _MEGABYTE


def find_gguf(path: Path) -> Path | None:
    """The GGUF file a path stands for: itself, or a folder's only weights. None for the rest."""
    if path.suffix.lower() == ".gguf" and not path.is_dir():
        if not path.is_file():
            raise ModelError(f"There is no GGUF file '{path}'.", next_step="Check the path.")
        return path
    if not path.is_dir() or any(path.glob("*.safetensors")):
        return None
    files = sorted(path.glob("*.gguf"))
    if len(files) > 1:
        raise ModelError(
            f"The folder '{path}' holds {len(files)} GGUF files.",
            next_step=f"Give the path of one of them, as in {files[0]}.",
        )
    return files[0] if files else None


def gguf_digest(path: Path) -> str:
    """A fingerprint of all of a file."""
    return f"sha256:{file_digests([path])[0][:32]}"


def copy_folder(path: Path) -> Path:
    """Where the safetensors copy of a GGUF model is, or will be."""
    content = gguf_digest(path).removeprefix("sha256:")
    return cache_folder() / "gguf" / f"{path.stem[:_NAME_LENGTH]}-{content}-{_FORMAT}"


def converted(path: Path) -> Path:
    """The folder with the safetensors copy of a GGUF model, which is made if it is not there."""
    folder = copy_folder(path)
    if folder.is_dir():
        return folder
    header = read_header(path)
    need_transformers()
    need_module("gguf", "gguf", purpose="Reading a GGUF file")
    need_module("accelerate", "gguf", purpose="Reading a GGUF file")
    check_whole(header)
    with _storing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(folder):
        if not folder.is_dir():
            _check_space(folder, header)
            say(
                f"Converting {path.name} to safetensors, once and for all; the copy is kept in "
                f"{folder} ({CACHE_VARIABLE} sets another place)."
            )
            _make(folder, header)
    return folder


def _make(folder: Path, header: Header) -> None:
    from divtok.models.gguf.convert import convert

    draft = folder.with_name(f".{folder.name}.part")
    with _storing(folder):
        shutil.rmtree(draft, ignore_errors=True)  # left by a process that was killed
        draft.mkdir()
    try:
        save = convert(header)
        with _storing(folder):
            save(draft)
            # A rename that outlives a power cut must not name empty files.
            for written in draft.iterdir():
                with written.open("rb+") as file:
                    sync(file.fileno())
            sync_folder(draft)
            draft.rename(folder)
            sync_folder(folder.parent)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


@contextmanager
def _one_at_a_time(folder: Path) -> Generator[None]:
    """Hold the right to make this copy; the system lets go of it when its holder dies."""
    lock = FileLock(folder.with_name(f".{folder.name}.lock"))
    with _storing(folder):
        try:
            held = lock.acquire(blocking=False)
        except Timeout:
            say(f"Waiting for another process that is converting to {folder}.")
            held = lock.acquire()
    with held:
        yield


def _check_space(folder: Path, header: Header) -> None:
    weights = sum(tensor.size for tensor in header.tensors)
    needed = weights * _BYTES_PER_WEIGHT + _TOKENIZER_BYTES
    free = shutil.disk_usage(folder.parent).free
    if free < needed:
        raise ModelError(
            f"Converting '{header.path}' needs {needed / 1e9:.1f} GB in {folder.parent}, "
            f"where {free / 1e9:.1f} GB are free.",
            next_step=f"Free some space, or set {CACHE_VARIABLE} to a folder on a larger disk.",
        )


@contextmanager
def _storing(folder: Path) -> Generator[None]:
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, SafetensorError) as error:
        raise ModelError(
            f"The converted model cannot be stored in {folder.parent} ({error}).",
            next_step=f"Make room there, or set {CACHE_VARIABLE} to another folder.",
        ) from error
