"""What marks divergent and unexpected tokens where no style is seen, and what the marks mean.

Text alone: of colours and tags nothing is known here.
"""

from __future__ import annotations

# Behind a summary, where servers told too little of the tokens to know their entropies.
NOT_KNOWN = "unexpected ones are not known"


def marked(text: str, *, divergent: bool, unexpected: bool) -> str:
    """Divergent tokens in [brackets], unexpected ones in {!braces}.

    With a sign of their own, for answers of mathematics are full of braces.
    """
    if unexpected:
        text = f"{{!{text}}}"
    return f"[{text}]" if divergent else text


def summary(divergent: int, unexpected: int | None, tokens: int) -> str:
    """How many there are. Of unexpected ones nothing is said where there are none."""
    also = f" and {unexpected} unexpected" if unexpected else ""
    return f"{divergent} divergent{also} of {tokens} tokens"


def means_divergent(theta: float) -> str:
    return f"the models are more than {theta:g} bits apart"


def means_unexpected(guard: float) -> str:
    return (
        f"neither model would have written it (more than {guard:g} nats more surprising to both "
        "than they expect)"
    )
