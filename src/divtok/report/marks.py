"""What marks divergent and unexpected tokens where no style is seen, and what the marks mean.

Text alone: of colours and tags nothing is known here.
"""

from __future__ import annotations

# Behind a summary, where servers told too little of the tokens to know their entropies.
NOT_KNOWN = "unexpected ones are not known"


def marked(text: str, *, divergent: bool, unexpected: bool) -> str:
    """Divergent tokens in [brackets], unexpected ones in {!braces}.

    With a sign of their own, for answers of mathematics are full of braces. A newline at its end
    stays behind the mark: on the next line it would not be seen as its.
    """
    body = text.rstrip("\n")
    mark = f"{{!{body}}}" if unexpected else body
    return (f"[{mark}]" if divergent else mark) + text[len(body) :]


def with_newlines_seen(text: str) -> str:
    """Of a token that is marked: a newline still breaks the line, but has a sign, too."""
    return text.replace("\n", "↵\n")


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
