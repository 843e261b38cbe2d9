"""Question, gold answer and response, with tabs between them."""

from __future__ import annotations

from pathlib import Path

from divtok.importers.imported import Imported
from divtok.importers.importer import ImportOptions, Rows, Tell, importer


@importer("tsv", columns=())
def read_tsv(path: Path, options: ImportOptions, tell: Tell) -> Rows:
    """Question, gold answer and response, with tabs between them."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        question, answer, response = line.split("\t")
        where = f"{path}, line {number}"
        yield Imported(where, response, question=question, answer=answer)
