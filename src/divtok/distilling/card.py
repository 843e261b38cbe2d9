"""The card of a distilled auxiliary: what it is, how it was made, and what to beware of."""

from __future__ import annotations

from divtok.distilling.facts import Distilled

_TEXT = """\
# {name}

An auxiliary for `{source}`: {kept} of its {source_layers} layers, distilled on its own responses by
`divtok distil`. It is made to read along with `{source}`, not to write.

It learned from the generator it is compared with, so it shares that model's mistakes: where both
are wrong alike, no token diverges. It is nearest on the responses it learned from: fit a theta
(`divtok fit`) and check confidences on graded responses to other problems.

| | |
|---|---|
{rows}

{few}Held-out responses are to problems that were not learned from. KL is that of the next-token
distributions, from the source to this model; agreement says how often both have the same likeliest
token. The same facts are in `distilled.json`.
"""


# A mean KL and an agreement over fewer tokens than this say little of other responses.
FEW_TOKENS = 1000
_FEW = """\
**Few held-out tokens.** The held-out figures rest on {tokens:,} tokens, fewer than {few:,}: they
are mostly chance. More responses to learn from leave more that are held out.

"""


def card_text(facts: Distilled, *, licence: str | None) -> str:
    """README.md, with the licence of the source where its card states one."""
    front = "" if licence is None else f"license: {licence}\n"
    rows = "\n".join(f"| {name} | {value} |" for name, value in _rows(facts).items())
    tokens = facts.held_out_tokens
    text = _TEXT.format(
        name=facts.folder.name,
        source=facts.source,
        kept=len(facts.layers),
        source_layers=facts.source_layers,
        rows=rows,
        few=_FEW.format(tokens=tokens, few=FEW_TOKENS) if tokens < FEW_TOKENS else "",
    )
    return f"---\nbase_model: {facts.source}\n{front}---\n\n{text}"


def _rows(facts: Distilled) -> dict[str, str]:
    revision = "" if facts.source_revision is None else f", revision {facts.source_revision}"
    cut = f", {facts.cut_responses:,} of them cut at {facts.max_length:,} tokens"
    return {
        "source": f"`{facts.source}`{revision}",
        "digest of the source": f"`{facts.source_digest}`",
        "layers kept": f"{', '.join(map(str, facts.layers))} (of 0 to {facts.source_layers - 1})",
        "parameters": f"{facts.parameters:,} of {facts.source_parameters:,}",
        "responses of": f"`{facts.generator}`, run {facts.run}",
        "learned from": f"{facts.responses:,} responses to {facts.problems:,} problems, "
        f"{facts.tokens:,} tokens{cut if facts.cut_responses else ''}",
        "epochs and steps": f"{facts.epochs:.2f} and {facts.steps:,}, of {facts.batch_tokens:,} "
        f"tokens each, learning rate {facts.learning_rate:.3g}",
        "seed": f"{facts.seed}",
        "time and device": f"{facts.seconds:.0f} s on {facts.device}, products in {facts.dtype}, "
        f"stored in {facts.stored_dtype}",
        "held out": f"{facts.held_out_responses:,} responses to {facts.held_out_problems:,} "
        f"problems, {facts.held_out_tokens:,} tokens",
        "held-out KL before": f"{facts.kl_before:.4f} nats a token",
        "held-out KL after": f"{facts.kl_after:.4f} nats a token",
        "top-1 agreement before": f"{100 * facts.agreement_before:.1f} %",
        "top-1 agreement after": f"{100 * facts.agreement_after:.1f} %",
    }
