"""Which protocol finds the answers of responses that another prompt asked for.

Every protocol looks for an answer in every response; the one that finds most fits. Of equal ones
the first counts: a mark that hardly stands there by chance says more than a sentence. What a
protocol would have asked means nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence

from divtok.protocols.protocol import PROTOCOLS, Protocol
from divtok.protocols.wording import kind_of

AUTO = "auto"
DEFAULT = "cot"
# Responses that are looked at, spread over all: enough to tell protocols apart.
MOST_LOOKED_AT = 2000

_FIRST = ("cot", "hashes", "letter", "sentence", "text", "json")


def best_protocol(
    texts: Sequence[str], *, golds: Sequence[str] = (), kept: str | None = None
) -> tuple[str, str | None]:
    """The protocol for these responses, and the counts it was chosen by, in a line.

    A letter is no answer where the gold answers that are known are mostly none. `kept` is one that
    is settled already: it stays, and the line says where another finds more.
    """
    step = -(-len(texts) // MOST_LOOKED_AT) or 1
    looked_at = [text for text in texts[::step] if text]
    fitting = [p for p in _in_order() if _fits(p, golds)]
    found = {p.name: sum(_answers(p, text) for text in looked_at) for p in fitting}
    best = max(found, key=lambda name: found[name])
    if not looked_at:
        return kept or DEFAULT, None
    if not found[best]:
        return kept or DEFAULT, (
            f"answers: no protocol finds any in {len(looked_at)} responses, so '{kept or DEFAULT}' "
            "stays; 'divtok ls protocols' lists what each looks for"
        )
    others = sorted((n for n in found if found[n] and n != best), key=lambda n: -found[n])
    parts = [f"'{best}' finds {found[best]} of {len(looked_at)}"]
    counts = ", ".join([*parts, *(f"'{name}' {found[name]}" for name in others)])
    if kept is None:
        return best, f"answers: {counts}; the protocol is '{best}'"
    if found.get(kind_of(kept)) == found[best]:
        return kept, None
    return kept, (
        f"answers: {counts}, but the protocol of this run is '{kept}': import the file into a run "
        "of its own to have it read otherwise"
    )


def _fits(protocol: Protocol, golds: Sequence[str]) -> bool:
    if protocol.grader != "choice":
        return True
    known = golds[:MOST_LOOKED_AT]
    return 2 * sum(protocol.find_answer(gold) is not None for gold in known) >= len(known)


def _in_order() -> list[Protocol]:
    """Those with a form of their own first, then by how little of it can be there by chance."""
    ranks = {name: rank for rank, name in enumerate(_FIRST)}
    last = len(ranks)
    return sorted(PROTOCOLS, key=lambda p: -1 if p.states_confidence else ranks.get(p.name, last))


def _answers(protocol: Protocol, text: str) -> bool:
    """Whether it finds an answer; one that states a confidence has to find that with it."""
    if protocol.read_confidence is not None and protocol.read_confidence(text).value is None:
        return False
    return protocol.find_answer(text) is not None
