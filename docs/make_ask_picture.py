"""Write a picture of `divtok ask` while it writes: its line so far, with the confidence below it.

    python docs/make_ask_picture.py docs/images/ask.svg --at 35 --temperature 1 --seed 7 \\
        --pair divtok/tiny-1.6m divtok/tiny-0.3m --estimator dtc_lin --estimator dtc_weighted \\
        "Ada has 7365 eggs. Ada buys 3078 eggs and gives 3 times 77 away. How many are left?"

What is drawn is what the verb draws, by the same functions, after so many tokens.
"""

from __future__ import annotations

import argparse
import io
import os
import shlex
from pathlib import Path

from rich.console import Console
from rich.text import Text

import divtok
from divtok.api.streaming import StreamEvent
from divtok.cli.answer_screen import answer_text, corner

WIDTH = 84


def command(given: argparse.Namespace) -> str:
    """What a reader would type, in lines that fit."""
    lines = [f"divtok ask {shlex.quote(given.question)}", f"--pair {' '.join(given.pair)}"]
    lines[1] += f" --temperature {given.temperature:g} --seed {given.seed}"
    if given.theta is not None:
        lines[1] += f" --theta {given.theta:g}"
    if given.estimator:
        lines.append(" ".join(f"--estimator {name}" for name in given.estimator))
    return "$ " + " \\\n    ".join(lines)


def drawn(given: argparse.Namespace, events: list[StreamEvent]) -> Console:
    console = Console(
        width=WIDTH, record=True, file=io.StringIO(), force_terminal=True, highlight=False
    )
    console.print(Text(command(given), style="dim"))
    console.print(Text.assemble(*(answer_text(event) for event in events)))
    console.print(corner(events[-1]))
    return console


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("question")
    parser.add_argument("--pair", nargs=2, required=True)
    parser.add_argument("--at", type=int, help="tokens that are written; by default all")
    parser.add_argument("--temperature", type=float, default=0.6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--theta", type=float)
    parser.add_argument("--max-tokens", type=int)
    parser.add_argument("--estimator", action="append", default=[])
    given = parser.parse_args()
    os.environ |= {"FORCE_COLOR": "1", "COLORTERM": "truecolor", "TERM": "xterm"}
    events = list(
        divtok.stream(
            given.question,
            pair=divtok.load_pair(*given.pair),
            estimator=given.estimator or None,
            theta=given.theta,
            temperature=given.temperature,
            seed=given.seed,
            max_tokens=given.max_tokens,
        )
    )
    console = drawn(given, events[: given.at])
    given.out.write_text(console.export_svg(title="divtok ask"), encoding="utf-8")


if __name__ == "__main__":
    main()
