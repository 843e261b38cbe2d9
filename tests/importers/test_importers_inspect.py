"""Logs of Inspect, held against ones that Inspect wrote, whole and broken in many ways."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from importers_samples import (
    FAILING_JSON,
    FAILING_LOG,
    HF_LOG,
    REASONING_LOG,
    all_rows,
    log_samples,
    members,
    rows_of,
    write_log,
)

from divtok.errors import DataError
from divtok.importers import BadRow, to_records
from divtok.importers import zip_members as unpacking
from divtok.importers.zip_members import ZipMembers

HEADER = {"eval": {"model": "openai/gpt", "task": "sums"}, "plan": {"config": {}}}


def sample(**changes: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": "It is 2."}
    output = {"choices": [{"message": message, "stop_reason": "stop"}]}
    return {"id": 1, "epoch": 1, "input": "1 + 1?", "target": "2", "output": output, **changes}


def said(content: Any, **message: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"content": content, **message}, "stop_reason": "stop"}]}


def test_the_real_logs_hold_zstandard_members() -> None:
    for log in (HF_LOG, FAILING_LOG, REASONING_LOG):
        with ZipMembers(log) as opened:
            assert {name: opened.read(name) for name in opened.names()} == members(log)


@pytest.mark.parametrize("log", [HF_LOG, FAILING_LOG])
def test_a_real_log_comes_through_whole(log: Path) -> None:
    header = json.loads(members(log)["header.json"])
    written, rows = log_samples(log), rows_of(log, "inspect")
    assert len(rows) == len(written) == 10
    failed = 0
    for row, logged in zip(rows, written, strict=True):
        assert (row.problem_id, row.sample) == (logged["id"], logged["epoch"] - 1)
        assert (row.question, row.answer) == (logged["input"], logged["target"])
        assert (row.generator, row.benchmark) == (header["eval"]["model"], "arith_easy")
        name = f"samples/{logged['id']}_epoch_{logged['epoch']}.json"
        assert row.where == f"{log}, member '{name}'"
        assert row.response == logged["output"]["completion"]
        if logged.get("error"):
            failed += 1
            assert (row.finish_reason, row.reason) == ("failed", logged["error"]["message"])
        else:
            # The local provider does not say how a response ended.
            assert logged["output"]["choices"][0]["stop_reason"] == "unknown"
            assert (row.finish_reason, row.reason) == ("unknown", None)
    assert failed == (1 if log == FAILING_LOG else 0)


def test_the_json_form_says_the_same() -> None:
    def told(row: Any) -> tuple[Any, ...]:
        return (row.problem_id, row.sample, row.question, row.answer, row.response, row.reason)

    as_json = {told(row) for row in rows_of(FAILING_JSON, "inspect")}
    assert as_json == {told(row) for row in rows_of(FAILING_LOG, "inspect")}
    assert len(as_json) == 10
    assert rows_of(FAILING_JSON, "inspect")[2].where == f"{FAILING_JSON}, sample 3"


def test_reasoning_comes_first_and_each_choice_is_a_sample() -> None:
    written, rows = log_samples(REASONING_LOG), rows_of(REASONING_LOG, "inspect")
    expected: list[tuple[str, int, str, str]] = []
    for logged in written:
        for index, choice in enumerate(logged["output"]["choices"]):
            content = choice["message"]["content"]
            if not isinstance(content, str):
                thought, text = content
                content = f"{thought['reasoning']}\n\n{text['text']}"
            ending = {"stop": "stop", "max_tokens": "length"}[choice["stop_reason"]]
            expected.append((logged["id"], (logged["epoch"] - 1) * 2 + index, content, ending))
    assert len(expected) == 12
    assert {ending for *_, ending in expected} == {"stop", "length"}
    found = [(row.problem_id, row.sample, row.response, row.finish_reason) for row in rows]
    assert found == expected


@pytest.mark.parametrize("start", [False, True])
def test_other_methods_and_unfinished_logs_are_read(tmp_path: Path, start: bool) -> None:
    log = write_log(tmp_path / "a.eval", HEADER, [sample(), sample(epoch=2)], start=start)
    rows = rows_of(log, "inspect")
    assert [(r.sample, r.response, r.generator, r.benchmark) for r in rows] == [
        (0, "It is 2.", "openai/gpt", "sums"),
        (1, "It is 2.", "openai/gpt", "sums"),
    ]


@pytest.mark.parametrize(
    ("changes", "response", "finish_reason", "reason"),
    [
        ({"output": said([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])},
         "a\nb", "stop", None),
        ({"output": said("")}, "", "stop", None),
        ({"output": said("attachment://x"), "attachments": {"x": "long"}}, "long", "stop", None),
        ({"output": said([{"type": "reasoning", "reasoning": "cipher", "redacted": True,
                           "summary": "gist"}, {"type": "text", "text": "a"}])},
         "gist\n\na", "stop", None),
        ({"output": said("", tool_calls=[{"id": 1}])},
         "", "stop", "the response is a tool call without text"),
        ({"output": {"choices": []}}, "", "failed", "the sample has no output"),
        ({"output": {"choices": [], "error": "too\nlong"}}, "", "failed", "too long"),
        ({"output": {}, "limit": {"type": "time"}}, "", "failed", "limit: time"),
        ({"error": {"message": "\x1b[31mboom"}}, "", "failed", "\N{REPLACEMENT CHARACTER}[31mboom"),
        ({"error": {}}, "", "failed", "the sample ended in an error"),
    ],
)  # fmt: skip
def test_what_an_output_says(
    tmp_path: Path, changes: dict[str, Any], response: str, finish_reason: str, reason: str | None
) -> None:
    (row,) = rows_of(write_log(tmp_path / "a.eval", HEADER, [sample(**changes)]), "inspect")
    assert (row.response, row.finish_reason, row.reason) == (response, finish_reason, reason)


def test_the_question_is_the_last_word_of_the_user(tmp_path: Path) -> None:
    talk = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": [{"type": "text", "text": "1 + 1?"}]},
    ]
    (row,) = rows_of(write_log(tmp_path / "a.eval", HEADER, [sample(input=talk)]), "inspect")
    assert row.question == "1 + 1?"


def test_columns_reach_into_the_sample(tmp_path: Path) -> None:
    log = write_log(
        tmp_path / "a.eval", HEADER, [sample(target=["2", "two"], metadata={"q": "Q", "n": 4})]
    )
    with pytest.raises(DataError, match=r"'target' has 2 answers. Name one"):
        all_rows(log, "inspect")
    columns = {"answer": "target.1", "question": "metadata.q", "id": "metadata.n"}
    (row,) = rows_of(log, "inspect", columns=columns)
    assert (row.question, row.answer, row.problem_id) == ("Q", "two", "4")
    (row,) = rows_of(log, "inspect", columns={"answer": "", "question": "", "id": ""})
    assert (row.question, row.answer, row.problem_id, row.sample) == (None, None, None, None)


def test_failures_take_the_place_of_all_choices(tmp_path: Path) -> None:
    header = {**HEADER, "plan": {"config": {"num_choices": 3}}}
    log = write_log(tmp_path / "a.eval", header, [sample(epoch=2, error={"message": "no"})])
    assert [(r.sample, r.reason) for r in rows_of(log, "inspect")] == [(n, "no") for n in (3, 4, 5)]


def test_a_sample_that_was_written_again_counts_once(tmp_path: Path) -> None:
    log = write_log(tmp_path / "a.eval", HEADER, [sample()])
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(log, "a") as again:
        again.writestr("samples/0.json", json.dumps(sample(output=said("Again."))))
    assert [row.response for row in rows_of(log, "inspect")] == ["Again."]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"epoch": 0}, "'epoch' is not a whole number"),
        ({"epoch": True}, "'epoch' is not a whole number"),
        ({"input": ""}, "'input' is empty"),
        ({"input": [{"role": "system", "content": "x"}]}, "'input' is missing"),
        ({"input": [{"role": "user", "content": [{"type": "image"}]}]}, "not text ('image')"),
        ({"output": said("\ud800")}, "lone surrogate"),
        ({"output": said(None)}, "a choice has no content"),
        ({"output": {"choices": [1]}}, "not a JSON object"),
        ({"output": {"choices": [{}, {}]}}, "more choices"),
        ({"output": said("attachment://gone")}, "attachment 'gone'"),
        ({"id": ""}, "'id' is empty"),
        ({"target": {"a": 1}}, "neither text nor a finite number"),
    ],
)
def test_a_broken_member_is_named_or_set_aside(
    tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    log = write_log(tmp_path / "a.eval", HEADER, [sample(id=7), sample(**changes)])
    with pytest.raises(DataError) as error:
        all_rows(log, "inspect")
    where = f"{log}, member 'samples/1.json'"
    assert error.value.what.startswith(f"{where}: ")
    assert why in error.value.what
    found = all_rows(log, "inspect", skip_bad=True)
    assert [row for row in found if isinstance(row, BadRow)] == [BadRow(where, error.value.what)]
    assert len(found) == 2


def test_other_files_are_no_logs(tmp_path: Path) -> None:
    log = tmp_path / "a.eval"
    with zipfile.ZipFile(log, "w") as other:
        other.writestr("samples/0.json", "{}")
    with pytest.raises(DataError, match="not a log of Inspect"):
        all_rows(log, "inspect")
    with pytest.raises(DataError, match="has no samples"):
        all_rows(write_log(log, HEADER, []), "inspect")
    log.write_text("not a zip")
    with pytest.raises(DataError, match="not a zip file"):
        all_rows(log, "inspect")
    with pytest.raises(DataError, match="cannot be read"):
        all_rows(tmp_path / "nowhere.eval", "inspect")
    (tmp_path / "a.json").write_text('{"samples": {}}')
    with pytest.raises(DataError, match="no list of samples"):
        all_rows(tmp_path / "a.json", "inspect")


def test_a_log_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    data = REASONING_LOG.read_bytes()
    cut = tmp_path / "cut.eval"
    for length in {*range(0, len(data), 997), len(data) - 1, len(data) - 22}:
        cut.write_bytes(data[:length])
        with pytest.raises(DataError, match="cut off"):
            all_rows(cut, "inspect")


def _directory_entry(data: bytes, name: str) -> int:
    """Where the zip's directory speaks of a member."""
    position = data.rindex(name.encode()) - 46
    assert data[position : position + 4] == b"PK\x01\x02"
    return position


def _patched(tmp_path: Path, name: str, offset: int, value: bytes) -> Path:
    data = bytearray(HF_LOG.read_bytes())
    at = _directory_entry(bytes(data), name) + offset
    data[at : at + len(value)] = value
    path = tmp_path / "patched.eval"
    path.write_bytes(data)
    return path


MEMBER = "samples/arith-easy-0002_epoch_1.json"


@pytest.mark.parametrize(
    ("offset", "value", "why"),
    [
        (16, b"\0\0\0\0", "does not match the directory's checksum"),
        (24, (10).to_bytes(4, "little"), "cannot be unpacked"),
        (24, (100_000).to_bytes(4, "little"), "cannot be unpacked"),
        (24, (2**32 - 2).to_bytes(4, "little"), "bytes are more than"),
        (20, (5).to_bytes(4, "little"), "cannot be unpacked"),
        (8, b"\x01\x00", "it is encrypted"),
        (10, (14).to_bytes(2, "little"), "compression method 14"),
        (42, (11).to_bytes(4, "little"), "not where the directory says"),
    ],
)
def test_a_member_that_is_not_what_the_directory_says(
    tmp_path: Path, offset: int, value: bytes, why: str
) -> None:
    path = _patched(tmp_path, MEMBER, offset, value)
    with pytest.raises(DataError) as error:
        all_rows(path, "inspect")
    assert error.value.what.startswith(f"{path}, member '{MEMBER}': ")
    assert why in error.value.what
    found = all_rows(path, "inspect", skip_bad=True)
    assert [isinstance(row, BadRow) for row in found].count(True) == 1
    assert len(to_records(found).trajectories) == 9


def test_a_flipped_bit_in_a_members_content_is_found(tmp_path: Path) -> None:
    data = bytearray(HF_LOG.read_bytes())
    info = zipfile.ZipFile(HF_LOG).getinfo(MEMBER)
    data[info.header_offset + 30 + len(MEMBER) + info.compress_size // 2] ^= 4
    path = tmp_path / "flipped.eval"
    path.write_bytes(data)
    with pytest.raises(DataError, match="cannot be unpacked"):
        all_rows(path, "inspect")


def test_a_member_is_never_unpacked_beyond_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacking, "LARGEST_MEMBER", 1000)
    log = write_log(tmp_path / "a.eval", HEADER, [sample(), sample(input="q" * 2000)])
    with pytest.raises(DataError, match=r"samples/1.json': \d+ bytes are more than the 1000"):
        all_rows(log, "inspect")


def test_several_frames_are_one_member(tmp_path: Path) -> None:
    """Inspect begins a new frame in long members."""
    text = json.dumps(sample()).encode()
    codec = pa.Codec("zstd")
    packed = b"".join(codec.compress(part, asbytes=True) for part in (text[:20], text[20:]))
    path = tmp_path / "frames.eval"
    with zipfile.ZipFile(path, "w") as log:
        log.writestr("header.json", json.dumps(HEADER))
        log.writestr("samples/0.json", packed)
    data = bytearray(path.read_bytes())
    at = _directory_entry(bytes(data), "samples/0.json")
    data[at + 10 : at + 12] = (93).to_bytes(2, "little")
    data[at + 16 : at + 20] = zipfile.crc32(text).to_bytes(4, "little")
    data[at + 24 : at + 28] = len(text).to_bytes(4, "little")
    path.write_bytes(data)
    assert rows_of(path, "inspect")[0].response == "It is 2."


def test_whatever_byte_is_changed_nothing_but_a_data_error_comes(tmp_path: Path) -> None:
    data = REASONING_LOG.read_bytes()
    path = tmp_path / "changed.eval"
    shutil.copy(REASONING_LOG, path)
    directory = data.index(b"PK\x01\x02")
    read = refused = 0
    for position in [*range(0, directory, 211), *range(directory, len(data), 7)]:
        path.write_bytes(data[:position] + bytes([data[position] ^ 0x55]) + data[position + 1 :])
        try:
            all_rows(path, "inspect", skip_bad=True)
            read += 1
        except DataError:
            refused += 1
    assert min(read, refused) > 10
