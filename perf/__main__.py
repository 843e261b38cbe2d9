"""The command line of the speed runs; see the package."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from divtok.errors import EXIT_OK, EXIT_PARTIAL, DivtokError
from perf import agreement
from perf.results import RESULTS, SECTIONS, Section, write_section


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m perf", description="Speed and memory.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run", help="measure sections on this machine and store the results")
    names = (*SECTIONS, agreement.NAME)
    run.add_argument("--section", action="append", required=True, choices=names)
    run.add_argument("--quick", action="store_true", help="toy sizes, to try the code out")
    run.add_argument("--out", type=Path, help=f"folder of the results (default {RESULTS.name}/)")
    render = verbs.add_parser("render", help="write the docs pages from stored results")
    render.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    try:
        if given.verb == "render":
            return _render(given.results)
        return _run(given.section, quick=given.quick, out=given.out)
    except DivtokError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


def _run(names: list[str], *, quick: bool, out: Path | None) -> int:
    code = EXIT_OK
    for name in names:
        command = f"python -m perf run --section {name}" + (" --quick" if quick else "")
        # Toy figures never take the place of real ones.
        folder = out or (None if quick else RESULTS)
        run = _compare if name == agreement.NAME else _measure
        if not run(name, command, quick=quick, folder=folder):
            code = EXIT_PARTIAL
    return code


def _measure(name: str, command: str, *, quick: bool, folder: Path | None) -> bool:
    """A section of speed and memory; False where divtok itself could not be measured."""
    from perf.page import section_block
    from perf.sections import run_section

    section = run_section(name, quick=quick, command=command)
    if folder is not None:
        print(f"wrote {write_section(section, folder)}", file=sys.stderr)
    print(section_block(section), flush=True)
    return not _ours_failed(section)


def _compare(name: str, command: str, *, quick: bool, folder: Path | None) -> bool:
    """divtok's estimators beside other packages'; False where they differ."""
    from perf import estimators

    found = estimators.run(quick=quick, command=command)
    if folder is not None:
        print(f"wrote {agreement.write_agreement(found, folder)}", file=sys.stderr)
    print(agreement.agreement_block(found), flush=True)
    if not found.holds:
        print(f"{name}: a difference is above {agreement.LIMIT:g}", file=sys.stderr)
    return found.holds


def _ours_failed(section: Section) -> bool:
    found = [case.of("ours") for case in section.cases]
    return any(m is None or m.best is None for m in found)


def _render(results: Path) -> int:
    from perf import busy, figures, page
    from perf.gpu import page as gpu_page
    from perf.gpu.findings import PATH, read_report

    sections = page.read_results(results, SECTIONS)
    for section in sections.values():
        if section.name.endswith("heads"):
            figures.save(section, page.IMAGES / page.image_name(section))
    text = page.PAGE.read_text(encoding="utf-8")
    text = page.fill(text, sections, SECTIONS)
    text = page.replace_block(text, gpu_page.NAME, gpu_page.block(read_report(results / PATH.name)))
    text = page.replace_block(text, busy.NAME, busy.block(results / busy.PATH.name))
    page.PAGE.write_text(text, encoding="utf-8")
    text = agreement.PAGE.read_text(encoding="utf-8")
    text = agreement.fill(text, agreement.read_agreement(results))
    agreement.PAGE.write_text(text, encoding="utf-8")
    print(f"wrote {page.PAGE} and {agreement.PAGE}", file=sys.stderr)
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
