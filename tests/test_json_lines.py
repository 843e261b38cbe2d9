"""Lines of files that may be of any size."""

from __future__ import annotations

from pathlib import Path

import pytest

from divtok import json_lines
from divtok.errors import DataError
from divtok.json_lines import json_object, numbered_lines, read_bytes


def test_lines_are_numbered_and_blank_ones_left_out(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"one\r\n\n  \nfour\x0b\x85\nfive")
    assert list(numbered_lines(file)) == [(1, b"one\r\n"), (4, b"four\x0b\x85\n"), (5, b"five")]
    file.write_bytes(b"")
    assert list(numbered_lines(file)) == []


def test_a_line_that_is_too_long_is_cut_and_the_next_one_keeps_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_lines, "LARGEST_LINE", 10)
    file = tmp_path / "a"
    for length in range(8, 45):
        for end in (b"", b"\n", b"\nlast", b"\n\nlast\n"):
            file.write_bytes(b"first\n" + b"x" * length + end)
            found = dict(numbered_lines(file))
            assert found[1] == b"first\n"
            assert found[2].strip() == b"x" * min(length, 11)
            last = {b"\nlast": 3, b"\n\nlast\n": 4}.get(end)
            assert set(found) == {1, 2} | ({last} if last else set())


def test_a_text_that_is_too_large_is_refused_with_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert json_object(b'{"a": 1}', "x", next_step="", largest=8) == {"a": 1}
    with pytest.raises(DataError, match="x: longer than 16 MiB"):
        json_object(b" " * (16 * 2**20 + 1), "x", next_step="Split it.")
    monkeypatch.setattr(json_lines, "LARGEST_FILE", 3 * 2**20)
    file = tmp_path / "a"
    file.write_bytes(bytes(3 * 2**20))
    assert len(read_bytes(file, next_step="")) == 3 * 2**20
    file.write_bytes(bytes(3 * 2**20 + 1))
    with pytest.raises(DataError, match=r"of more than 3 MiB\. Convert it"):
        read_bytes(file, next_step="Convert it.")


def test_deep_nesting_is_refused_with_its_limit() -> None:
    for levels, deep in ((200, False), (201, True), (900, True), (100_000, True)):
        text = b'{"a":' * (levels - 1) + b"{}" + b"}" * (levels - 1)
        if deep:
            with pytest.raises(
                DataError, match=r"x: (nested more than 200 levels|JSON that cannot)"
            ):
                json_object(text, "x", next_step="")
        else:
            json_object(text, "x", next_step="")
    wide = b'{"a": [' + b"[{}]," * 1000 + b"1]}"
    assert len(json_object(wide, "x", next_step="")["a"]) == 1001
