"""Responses from logs of Inspect: `.eval` files (zip) and their `.json` form.

A response is what the sample's last output says, and the question is the input's last word of the
user, with the options where there are any. What was said between the two (tool calls and their
results, earlier answers, further instructions) belongs to what the model answered to, so it is
written out after the question; such a conversation is a problem of its own. An epoch is a sample of
the problem; one that ended in an error, or without any output, is a failed row with the reason.
"""

from __future__ import annotations

import contextlib
import hashlib
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from divtok.compressed import plain_name
from divtok.errors import DataError
from divtok.importers.columns import check_named, value_at
from divtok.importers.imported import (
    Imported,
    checked_name,
    checked_text,
    choice_count,
    fault,
    gold_answer,
    shown,
)
from divtok.importers.importer import (
    Glimpse,
    ImportOptions,
    Line,
    Rows,
    Tell,
    each,
    good_rows,
    importer,
    line_at,
    object_in,
)
from divtok.importers.messages import (
    Outcome,
    choice_outcome,
    failed,
    last_user_message,
    turn_text,
)
from divtok.importers.verdicts import their_verdict
from divtok.importers.zip_members import LARGEST_MEMBER, ZipMembers
from divtok.json_lines import LARGEST_FILE, read_bytes
from divtok.records import TheirVerdict

_ZIP = b"PK"
_HEADER = "header.json"
_START = "_journal/start.json"  # in place of the header in a log that was never finished
_SAMPLES = "samples/"
_ATTACHMENT = "attachment://"
# The rest of a sample, its events above all, can be large and says nothing that is needed here.
_KEPT = (
    *("id", "epoch", "input", "choices", "target", "messages"),
    *("output", "error", "limit", "metadata", "scores"),
)


@dataclass(frozen=True, slots=True)
class _Header:
    model: str | None
    task: str | None
    choices: int  # responses for each epoch


def _is_log(seen: Glimpse) -> bool:
    if seen.start.startswith(_ZIP):
        inside = any(name.encode() in seen.start for name in (_HEADER, _START, _SAMPLES))
        return seen.name.endswith(".eval") or inside
    return isinstance(seen.first, dict) and seen.first.keys() >= {"eval", "samples"}


@importer(
    "inspect",
    columns=("question", "answer", "id"),
    files=("*.eval", "*.json"),
    recognise=_is_log,
)
def read_inspect(path: Path, options: ImportOptions, _: Tell) -> Rows:
    """.eval and .json logs of Inspect."""
    header, lines = _from_zip(path) if _is_zip(path) else _from_json(path)
    if not lines:
        raise DataError(f"{path} has no samples.", next_step="Check that the log is complete.")
    check_named(good_rows(lines), options.columns, str(path))
    yield from each(
        lines, lambda line: _imported(line, header, options.columns), skip_bad=options.skip_bad
    )


def _is_zip(path: Path) -> bool:
    if not plain_name(path).endswith(".json"):
        with contextlib.suppress(OSError), path.open("rb") as file:
            return path.suffix == ".eval" or file.read(len(_ZIP)) == _ZIP
        return True  # and its reader says what is wrong
    return False


def _from_zip(path: Path) -> tuple[_Header, list[Line]]:
    with ZipMembers(path) as members:
        names = members.names()
        first = next((name for name in (_HEADER, _START) if name in names), None)
        if first is None:
            raise DataError(
                f"{path} is not a log of Inspect: it has neither {_HEADER} nor {_START}.",
                next_step="Check the path and --format.",
            )
        header = _header(_member(members, first), members.where(first))

        def sample(name: str, where: str) -> dict[str, Any]:
            return _needed(_member(members, name), where)

        samples = [n for n in names if n.startswith(_SAMPLES) and n.endswith(".json")]
        return header, [line_at(members.where(name), sample, name) for name in samples]


def _member(members: ZipMembers, name: str) -> dict[str, Any]:
    return object_in(members.read(name), members.where(name), largest=LARGEST_MEMBER)


def _from_json(path: Path) -> tuple[_Header, list[Line]]:
    convert = "Convert it to the .eval form (inspect log convert), which is read bit by bit."
    log = object_in(read_bytes(path, next_step=convert), str(path), largest=LARGEST_FILE)
    samples = log.get("samples")
    if not isinstance(samples, list):
        raise DataError(
            f"{path} is not a log of Inspect: it has no list of samples.",
            next_step="Check the path and --format.",
        )
    numbered = enumerate(samples, start=1)
    return _header(log, str(path)), [
        line_at(f"{path}, sample {n}", _needed, sample) for n, sample in numbered
    ]


def _header(log: dict[str, Any], where: str) -> _Header:
    names = [value_at(log, column) for column in ("eval.model", "eval.task")]
    model, task = [
        checked_text(name, "model or task", where)
        if isinstance(name, str) and name.strip()
        else None
        for name in names
    ]
    choices = value_at(log, "plan.config.num_choices")
    if not isinstance(choices, int):
        choices = value_at(log, "eval.model_generate_config.num_choices")
    return _Header(model, task, choice_count(choices, "num_choices", where))


def _needed(sample: Any, where: str) -> dict[str, Any]:
    """The parts of a sample that are read, with texts instead of references to them."""
    if not isinstance(sample, dict):
        raise fault(where, "not a JSON object", "Check the file.")
    kept = {name: sample[name] for name in _KEPT if name in sample}
    attachments = sample.get("attachments")
    return _Attachments(attachments if isinstance(attachments, dict) else {}, where).put(kept)


@dataclass(slots=True)
class _Attachments:
    """The long texts of a sample, put where it refers to them."""

    texts: dict[str, Any]
    where: str
    put_so_far: int = 0  # characters: one text can be referred to any number of times

    def put(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self.put(child) for name, child in value.items()}
        if isinstance(value, list):
            return [self.put(child) for child in value]
        if isinstance(value, str) and value.startswith(_ATTACHMENT):
            return self._text(value.removeprefix(_ATTACHMENT))
        return value

    def _text(self, name: str) -> Any:
        if name not in self.texts:
            again = "Write the log again, or set such members aside with --skip-bad."
            raise fault(self.where, f"the attachment '{shown(name)}' is not there", again)
        text = self.texts[name]
        self.put_so_far += len(text) if isinstance(text, str) else 0
        if self.put_so_far > LARGEST_MEMBER:
            raise fault(self.where, f"its attachments make more than {LARGEST_MEMBER} characters")
        return text


def _imported(line: Line, header: _Header, columns: Mapping[str, str]) -> Iterator[Imported]:
    sample, where = line.row, line.where
    epoch = sample.get("epoch")
    if not isinstance(epoch, int) or isinstance(epoch, bool) or epoch < 1:
        raise fault(where, "'epoch' is not a whole number from 1 on", "Check the file.")
    identity = _mapped(sample, "id", columns, sample.get("id"))
    problem_id = None if identity is None else checked_name(identity, "id", where)
    question = _question(sample, columns, where)
    between = _between(sample.get("messages"), where) if "question" not in columns else []
    if between and question is not None:
        question = "\n\n".join([question, *between])
        digest = hashlib.sha256(question.encode()).hexdigest()[:8]
        problem_id = None if problem_id is None else f"{problem_id}-{digest}"
    row = Imported(
        where=where,
        response="",
        question=question,
        answer=_gold(sample, columns, where),
        problem_id=problem_id,
        benchmark=header.task,
        generator=header.model,
    )
    outcomes = _outcomes(sample, header.choices, where)
    for index, (response, finish_reason, reason) in enumerate(outcomes):
        yield replace(
            row,
            response=response,
            finish_reason=finish_reason,
            reason=reason,
            sample=None if identity is None else (epoch - 1) * header.choices + index,
            # Scorers see the first choice.
            verdicts=_verdicts(sample.get("scores"), where) if index == 0 else (),
        )


def _verdicts(scores: Any, where: str) -> tuple[TheirVerdict, ...]:
    """What each scorer says; one with several values is a scorer for each of them."""
    found: list[TheirVerdict] = []
    for name, score in scores.items() if isinstance(scores, dict) else ():
        value = score.get("value") if isinstance(score, dict) else score
        answer = score.get("answer") if isinstance(score, dict) else None
        extracted = checked_text(answer, "answer", where) if isinstance(answer, str) else None
        values = value if isinstance(value, dict) else {"": value}
        for part, each_value in values.items():
            scorer = checked_name(f"{name}.{part}" if part else name, "scorer", where)
            verdict = their_verdict(scorer, each_value, extracted, letters=True)
            found += [] if verdict is None else [verdict]
    return tuple(found)


def _between(messages: Any, where: str) -> list[str]:
    """What was said after the input and before the last output, a text for each message."""
    turns = [m for m in messages if isinstance(m, dict)] if isinstance(messages, list) else []
    users = [n for n, message in enumerate(turns) if message.get("role") == "user"]
    asked = [n for n in users if turns[n].get("source") == "input"] or users[:1]
    answered = [n for n, message in enumerate(turns) if message.get("role") == "assistant"]
    if not asked or not answered:
        return []
    return [turn_text(message, where) for message in turns[asked[-1] + 1 : answered[-1]]]


def _mapped(sample: dict[str, Any], field: str, columns: Mapping[str, str], usual: Any) -> Any:
    """The value of a named column, or the usual one; None where there is nothing."""
    if field not in columns:
        return usual
    return value_at(sample, columns[field], None) if columns[field] else None


def _question(sample: dict[str, Any], columns: Mapping[str, str], where: str) -> str | None:
    if columns.get("question") == "":
        return None
    if "question" in columns:
        return checked_name(_mapped(sample, "question", columns, None), "question", where)
    text = checked_name(last_user_message(sample.get("input"), where), "input", where)
    choices = sample.get("choices")
    if not isinstance(choices, list) or not choices:
        return text
    lettered = zip(string.ascii_uppercase, choices, strict=False)
    options = [f"{letter}) {checked_text(choice, 'choices', where)}" for letter, choice in lettered]
    return "\n".join([text, "", *options])


def _gold(sample: dict[str, Any], columns: Mapping[str, str], where: str) -> str | None:
    """The one target; several would each be right, and a problem has one gold answer."""
    if "answer" in columns:
        return gold_answer(_mapped(sample, "answer", columns, None), where)
    target = sample.get("target")
    targets = target if isinstance(target, list) else [target]
    if len(targets) > 1:
        raise fault(
            where,
            f"'target' has {len(targets)} answers",
            "Name one (--column answer=target.0), another column, or none (--column answer=).",
        )
    return gold_answer(targets[0], where) if targets else None


def _outcomes(sample: dict[str, Any], choices: int, where: str) -> list[Outcome]:
    """One for each choice of the epoch, or as many failures as there should have been choices."""
    error, output = sample.get("error"), sample.get("output")
    output = output if isinstance(output, dict) else {}
    found = output.get("choices")
    if error is not None:
        message = error.get("message") if isinstance(error, dict) else None
        return [failed(message, "the sample ended in an error")] * choices
    if not found:
        limit = value_at(sample, "limit.type")
        why = f"limit: {shown(limit)}" if isinstance(limit, str) else "the sample has no output"
        return [failed(output.get("error"), why)] * choices
    if not isinstance(found, list) or len(found) > choices:
        raise fault(
            where,
            "the output has more choices than the log's configuration says",
            "Check the file, or set such members aside with --skip-bad.",
        )
    return [choice_outcome(choice, "stop_reason", where) for choice in found]
