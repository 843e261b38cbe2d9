"""Text that tries to act: on a browser, a spreadsheet, a terminal, a template or a renderer."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path

from divtok.config.run import RunConfig, resolve, to_yaml
from divtok.records import (
    Confidence,
    Grade,
    Problem,
    Reason,
    Sampling,
    Trajectory,
    Verdict,
)
from divtok.store.run import Run, check_or_write_manifest

AWAY = "http://hostile.invalid"

ACTS = (
    "<script>alert(1)</script>",
    f'<script src="{AWAY}/a.js"></script>',
    "<img src=x onerror=alert(1)>",
    f'<img src="{AWAY}/a.png">',
    "<svg onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    f'<svg><image href="{AWAY}/a.png" /></svg>',
    '<a href="javascript:alert(1)" autofocus onfocus=alert(1)>x</a>',
    "javascript:alert(1)",
    "<body onload=alert(1)>",
    "<details open ontoggle=alert(1)>",
    "<video><source onerror=alert(1)></video>",
    "<input autofocus onfocus=alert(1)>",
    f'<iframe src="{AWAY}"></iframe>',
    '<iframe srcdoc="<script>parent.alert(1)</script>"></iframe>',
    f'<object data="{AWAY}/a.swf"></object>',
    f'<embed src="{AWAY}/a.swf">',
    f'<link rel="stylesheet" href="{AWAY}/a.css">',
    f"<style>@import '{AWAY}/a.css'; * {{ background: url({AWAY}/b.png) }}</style>",
    f'<div style="background: url({AWAY}/c.png)">x</div>',
    f'<form action="{AWAY}"><input type=submit autofocus></form>',
    f"![x]({AWAY}/a.png)",
    "[x](javascript:alert(1))",
    "<javascript:alert(1)>",
    f"[x]: {AWAY}",
    f"&lt;img src={AWAY}/d.png&gt;",
    "&#60;script&#62;alert(1)&#60;/script&#62;",
    "\\<script>alert(1)</script>",
    "{{ 7 * 7 }}{% for x in () %}",
    "`<script>alert(1)</script>`",
    "```html\n<script>alert(1)</script>\n```",
    "<?xml-stylesheet href='javascript:alert(1)'?>",
    "<![CDATA[<script>alert(1)</script>]]>",
    '<!DOCTYPE svg [<!ENTITY x SYSTEM "file:///etc/passwd">]>&x;',
    "\x1b]8;;javascript:alert(1)\x07click\x1b]8;;\x07",
    "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b31m",
    "\u202egnp.exe\u2066",
    "[/x][bold]not bold[/bold]",
    "=cmd|' /C calc'!A0",
    "@SUM(1+1)",
    "$\\frac{1}{$ \\input{/etc/passwd}",
)
FRAMES = (
    "{}",
    '"><{}',
    "'>{}",
    "</title></style></script>{}",
    "-->{}<!--",
    "]]>{}",
    "\n\n{}\n\n",
    "| {} |",
    "</text></g></svg>{}",
)


def hostile_strings(count: int) -> list[str]:
    """The first `count`, each act in its plain frame first."""
    found = dict.fromkeys(frame.replace("{}", act) for frame, act in product(FRAMES, ACTS))
    assert count <= len(found)
    return list(islice(found, count))


def hostile_run(folder: Path, strings: list[str]) -> tuple[Run, RunConfig]:
    """A scored run with these strings in every field that text can come into.

    One benchmark and generator for each string, with right, wrong and undecided responses.
    """
    config = resolve(RunConfig(family="tiny"))
    run = Run.create_or_open(folder)
    rows = list(_rows(strings))
    with run.lock():
        check_or_write_manifest(run, {"made": "by hand", "about": strings})
        run.write_config(to_yaml(config))
        run.problems.append(list({(t.benchmark, t.problem_id): p for p, t, _, _ in rows}.values()))
        run.trajectories.append([t for _, t, _, _ in rows])
        run.grades.append([g for _, _, g, _ in rows])
        run.confidences.append([c for _, _, _, found in rows for c in found])
    return run, config


def _rows(
    strings: list[str],
) -> Iterator[tuple[Problem, Trajectory, Grade, list[Confidence]]]:
    for i, text in enumerate(strings):
        benchmark = strings[(i + 1) % len(strings)]
        for sample, verdict in enumerate(
            (Verdict.CORRECT, Verdict.INCORRECT, Verdict.CORRECT, Verdict.UNDETERMINED)
        ):
            key = f"{i}-{sample}"
            undecided = verdict is Verdict.UNDETERMINED
            yield (
                Problem(text, benchmark, text, text),
                Trajectory(
                    key=key,
                    problem_id=text,
                    benchmark=benchmark,
                    sample=sample,
                    generator=text,
                    prompt_ids=(1,),
                    token_ids=(1, 2, 3),
                    text=text,
                    finish_reason="stop",
                    protocol="cot",
                    sampling=Sampling(),
                ),
                Grade(key, text, verdict, Reason("hostile", text) if undecided else None),
                [
                    Confidence(key, "nsl", {}, 0.2 + 0.2 * sample, None),
                    Confidence(key, "mean_prob", {"theta": text}, None, text),
                ],
            )
