"""What is printed in an encoding that lacks a sign, and to streams that take nothing any more."""

from __future__ import annotations

import errno
import io
import sys
from typing import Any

import pytest
from rich import box
from rich.table import Table

from divtok import screen


class Broken(io.StringIO):
    """A stream on which every write fails alike."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error

    def write(self, s: str, /) -> int:
        raise self.error


def stream(encoding: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="\n")


def written(found: io.TextIOWrapper) -> str:
    found.flush()
    assert isinstance(found.buffer, io.BytesIO)
    return found.buffer.getvalue().decode(found.encoding)


@pytest.fixture
def standard(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Standard output and standard error in an encoding, prepared as in a program."""

    def streams(encoding: str) -> tuple[io.TextIOWrapper, io.TextIOWrapper]:
        found = stream(encoding), stream(encoding)
        monkeypatch.setattr(sys, "stdout", found[0])
        monkeypatch.setattr(sys, "stderr", found[1])
        monkeypatch.setenv("COLUMNS", "60")
        screen.prepare()
        return found

    return streams


@pytest.mark.parametrize(
    ("sign", "spelled"),
    [
        ("a", "a"),
        ("\N{EM DASH}", "-"),
        ("\N{MINUS SIGN}", "-"),
        ("\N{HORIZONTAL ELLIPSIS}", "..."),
        ("\N{PLUS-MINUS SIGN}", "+-"),
        ("\N{MULTIPLICATION SIGN}", "x"),
        ("\N{RIGHTWARDS ARROW}", "->"),
        ("\N{RIGHT SINGLE QUOTATION MARK}", "'"),
        ("\N{LEFT DOUBLE QUOTATION MARK}", '"'),
        ("\N{GREATER-THAN OR EQUAL TO}", ">="),
        ("\N{BOX DRAWINGS LIGHT HORIZONTAL}", "-"),
        ("\N{BOX DRAWINGS HEAVY HORIZONTAL}", "-"),
        ("\N{BOX DRAWINGS HEAVY LEFT}", "-"),
        ("\N{BOX DRAWINGS LIGHT VERTICAL}", "|"),
        ("\N{BOX DRAWINGS LIGHT VERTICAL AND HORIZONTAL}", "+"),
        ("\N{BOX DRAWINGS LIGHT VERTICAL AND RIGHT}", "+"),
        ("\N{BOX DRAWINGS LIGHT ARC DOWN AND RIGHT}", "+"),
        ("\N{SYMBOL FOR ESCAPE}", "\\x1b"),
        ("\N{SYMBOL FOR DELETE}", "\\x7f"),
        ("\N{LATIN SMALL LETTER E WITH ACUTE}", "\\xe9"),
        ("\N{GREEK SMALL LETTER PI}", "\\u03c0"),
        ("\N{GRINNING FACE}", "\\U0001f600"),
    ],
)
def test_every_sign_has_a_spelling_in_ascii(sign: str, spelled: str) -> None:
    assert screen.ascii_of(sign) == spelled


def test_every_sign_at_all_can_be_spelled() -> None:
    everything = [chr(code) for code in range(0x3000) if not 0xD800 <= code < 0xE000]
    assert all(screen.ascii_of(sign).isascii() for sign in everything)
    assert all(len(screen.ascii_of(chr(code))) == 1 for code in range(0x2500, 0x2580))


def test_what_an_encoding_lacks_is_spelled_and_the_rest_stays(standard: Any) -> None:
    text = (
        "1 \N{PLUS-MINUS SIGN} 2 \N{EM DASH} \N{RIGHTWARDS ARROW} \x1b[2J \N{GREEK SMALL LETTER PI}"
    )
    for encoding, expected in (
        ("utf-8", "1 \u00b1 2 \u2014 \u2192 \u241b[2J \u03c0\n"),
        ("cp1252", "1 \u00b1 2 \u2014 -> \\x1b[2J \\u03c0\n"),
        ("ascii", "1 +- 2 - -> \\x1b[2J \\u03c0\n"),
    ):
        out, err = standard(encoding)
        screen.put(text)
        screen.put_error(text)
        assert (written(out), written(err)) == (expected, expected)


def test_a_table_keeps_its_shape_in_ascii(standard: Any) -> None:
    shapes: dict[str, str] = {}
    for encoding in ("utf-8", "ascii"):
        table = Table("name", "figure", box=box.SQUARE)
        table.add_row("a", "\N{EM DASH}")
        out, _ = standard(encoding)
        screen.show(table)
        shapes[encoding] = written(out)
    assert shapes["ascii"].splitlines() == [
        "+------+--------+",
        "| name | figure |",
        "+------+--------+",
        "| a    | -      |",
        "+------+--------+",
    ]
    assert [*map(len, shapes["utf-8"].splitlines())] == [17] * 5
    assert not shapes["utf-8"].isascii()


@pytest.mark.parametrize(
    ("error", "left"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), False),
        (OSError(errno.EBADF, "Bad file descriptor"), False),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), True),
    ],
)
def test_an_output_that_takes_nothing_ends_the_program(
    error: OSError, left: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", Broken(error))
    for write in (screen.put, screen.show):
        with pytest.raises(screen.Unwritable) as caught:
            write("a line")
        assert (caught.value.error, caught.value.reader_left) == (error, left)


def test_a_file_that_cannot_be_written_is_not_standard_output() -> None:
    error = OSError(errno.ENOSPC, "No space left on device", "a file")
    with pytest.raises(OSError, match="a file") as caught, screen.writing():
        raise error
    assert caught.value is error


@pytest.mark.parametrize("stderr", [None, Broken(OSError(errno.ENOSPC, "full"))])
def test_messages_that_go_nowhere_stop_no_work(
    stderr: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stderr", stderr)
    screen.put_error("unheard")
    assert not screen.watched()
    screen.put("heard")
    assert capsys.readouterr().out == "heard\n"
