"""Answers that no one would write, for the grader: made at random, or made to blow up."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

_ATOMS = (
    *("0", "1", "7", "12", "3.14", "1,000", "x", "y", "n", "i", "e", r"\pi", r"\infty", r"\alpha"),
    *("50%", r"90^\circ", r"\text{cm}", r"\text{no}", "A", r"\emptyset", r"\mathbb{R}", "½", "π"),
)
_NUMBERS = (
    *(
        "{n}",
        "-{n}",
        "{n}.50",
        "{n},000",
        "{n}/{m}",
        r"\frac{{{n}}}{{{m}}}",
        r"{n}\frac{{1}}{{{m}}}",
    ),
    *("{n}%", r"{n}\%", r"\${n}", "{n} cm", r"{n}\text{{ cm}}^2", "{n}_{{7}}", "({n})", "0{n}"),
    *(
        "She has {n} coins.",
        r"\text{{({c})}} {n}",
        "({c}) {m}",
        "{c}",
        r"\text{{word{c}}}",
        "${n}$",
    ),
)
_FRAMES = (
    *("{}+{}", "{}-{}", "{}{}", "{}/{}", "({})", "[{},{}]", "({},{})", "{},{}", "{}={}", "{}<{}"),
    *(r"\frac{{{}}}{{{}}}", r"\sqrt{{{}}}", r"\sqrt[{}]{{{}}}", "{}^{{{}}}", "{}_{{{}}}", "|{}|"),
    *(r"\sin {}", r"\log_{{{}}}{{{}}}", r"\{{{},{}\}}", r"\binom{{{}}}{{{}}}", r"{}\cup{}"),
    *(r"\left({}\right)", r"\boxed{{{}}}", r"${}$", r"\begin{{pmatrix}}{}\\{}\end{{pmatrix}}"),
    *(r"{}\bmod {}", r"\overline{{{}}}", r"{}\pm {}", r"\lfloor {}\rfloor", "{}!", r"\text{{{}}}"),
)
_NOISE = (
    *(
        "\\",
        "{",
        "}",
        "$",
        "^",
        "_",
        "&",
        "%",
        "#",
        "~",
        "\x00",
        "\x1b[2J",
        "\u202e",
        "\ud800",
        "\n",
    ),
    *("\\\\", r"\left", r"\right)", r"\begin{array}", r"\end{", "''", '"', "```", "<script>", "…"),
    *(r"\undefined{1}", r"\def\a{\a\a}\a", r"\input{/etc/passwd}", "９", "٣", "𝟙", "👍", "\ufeff"),
)


def fuzzed_answers(count: int, trap: Path, seed: int = 0) -> Iterator[tuple[str, str]]:
    """(gold, answer): terms put together, torn and spoilt; some try to create the file `trap`."""
    rng = random.Random(seed)
    code = (
        f"__import__('pathlib').Path('{trap}').touch()",
        f"open('{trap}','w').close()",
        f"eval(\"open('{trap}','w')\")",
        f"[x for x in ().__class__.__base__.__subclasses__()]+[open('{trap}','w')]",
    )
    for _ in range(count):
        if rng.random() < 0.5:  # what most answers are: a number, some word or a letter
            yield _plain(rng), _plain(rng)
            continue
        texts = [_term(rng, rng.randint(0, deepest)) for deepest in (1, 3)]
        kind = rng.random()
        if kind < 0.15:
            texts[1] = rng.choice((texts[0], f"{texts[0]}+0", f"({texts[0]})"))
        elif kind < 0.45:
            texts[1] = _spoilt(rng, texts[1])
        elif kind < 0.5:
            codes = (rng.choice((rng.randrange(128), rng.randrange(0x3000))) for _ in range(30))
            texts[1] = "".join(map(chr, codes))
        elif kind < 0.55:
            texts[1] = rng.choice(_FRAMES).format(rng.choice(code), texts[1])
        yield texts[0], texts[1]


def _plain(rng: random.Random) -> str:
    number, other = rng.randint(0, 12), rng.randint(0, 9)
    return rng.choice(_NUMBERS).format(n=number, m=other, c=rng.choice("ABCD"))


def _term(rng: random.Random, depth: int) -> str:
    if depth == 0:
        return rng.choice(_ATOMS)
    return rng.choice(_FRAMES).format(_term(rng, depth - 1), _term(rng, rng.randrange(depth)))


def _spoilt(rng: random.Random, text: str) -> str:
    for _ in range(rng.randint(1, 3)):
        at, end = sorted(rng.randrange(len(text) + 1) for _ in range(2))
        piece = rng.choice(("", rng.choice(_NOISE), text[at:end] * 2))
        text = text[:at] + piece + (text[end:] if rng.random() < 0.5 else text[at:])
    return text


def blow_ups(count: int) -> list[str]:
    """Short answers whose value, tree or search has no end in sight."""
    makers = (
        lambda n: "^{".join(["9"] * (3 + n % 30)) + "}" * (2 + n % 30),
        lambda n: f"(10^{{{9 + n}}})!",
        lambda n: "(" * (300 + n) + "x" + ")" * (300 + n),
        lambda n: r"\frac{1}{" * (20 + n % 12) + "x" + "}" * (20 + n % 12),
        lambda n: rf"\sum_{{k=1}}^{{10^{{{10 + n}}}}} \frac{{1}}{{k^k}}",
        lambda n: rf"\int_0^1 e^{{x^{{{n + 7}}}}} \sin(x^{{x}})^{{{n + 5}}} dx",
        lambda n: "+".join(rf"\sqrt{{x^{{{k}}}+{k}}}" for k in range(2, 30 + n)),
        lambda n: "".join(f"(x+{k})" for k in range(60 + n)) + f"^{{{n + 50}}}",
        lambda n: "1" * (900 + n),
        lambda n: "x" * 20_000 + "y" * n,
        lambda n: r"\prod_{k=1}^{10^{12}} (1+\frac{x}{k^{" + str(n + 2) + "}})",
        lambda n: rf"\binom{{10^{{{12 + n}}}}}{{10^{{{11 + n}}}}}",
        lambda n: r"\sqrt{" * 31 + f"{n + 2}" + "}" * 31,
        lambda n: "3" + "!" * (4 + n % 20),
        lambda n: rf"\sin(\cos(\tan(x^{{{n + 9}}})))^{{\sin(x)^{{\cos(x)}}}} = x^{{x^x}}",
    )  # fmt: skip
    return [makers[number % len(makers)](number // len(makers)) for number in range(count)]
