"""What a benchmark brings before it is fetched: how many problems, and how long the responses are.

Reads local files of problems; asks no network.
"""

from __future__ import annotations

from divtok.config.run import RunConfig
from divtok.errors import ConfigError
from divtok.problems.benchmark import find_benchmark
from divtok.protocols.protocol import PROTOCOLS

# Mean tokens of a response, and the same for generators that may write more than 8192 tokens, which
# are the ones that do. MATH-500: 1,500 real greedy responses of three models have 1,370 to 1,850
# characters, 450 to 790 tokens, and the newer models write more. The others are guesses.
_MEAN_TOKENS = {
    "math500": (700, 2_000),
    "math-train": (700, 2_000),
    "amc23": (1_200, 4_000),
    "aime24": (1_800, 7_000),
    "aime25": (1_800, 7_000),
    "hmmt25": (1_800, 8_000),
    "hmmt26": (1_800, 8_000),
}
_LONG_FROM = 8_192
# Measured on the embedded family; it writes the protocols that state a confidence a third longer.
_MEAN_TOKENS_EMBEDDED = {
    "arith-easy": 86,
    "arith-medium": 119,
    "arith-hard": 162,
    "arith-contest": 199,
    "arith-fit": 143,
}
_STATED_OVER_PLAIN = 1.3
_MEAN_TOKENS_UNKNOWN = (1_500, 1_500)


def problem_count(config: RunConfig, benchmark: str) -> int:
    """How many problems a run takes from a benchmark."""
    source = find_benchmark(benchmark, file=config.benchmark_file(benchmark)).source
    count = source.count  # nothing is fetched for planning
    if count is None:
        raise ConfigError(
            f"The number of problems in '{benchmark}' is not known before it is fetched.",
            next_step="Write 'count' in its benchmark file, or give a local file to plan with: "
            f"benchmark_files.{benchmark}=PATH",
        )
    return count if config.limit is None else min(count, config.limit)


def assumed_tokens(benchmark: str, *, protocol: str, max_length: int) -> float:
    """Mean tokens of a response before there are any; never more than the limit."""
    if benchmark in _MEAN_TOKENS_EMBEDDED:
        stated = _STATED_OVER_PLAIN if PROTOCOLS.get(protocol).states_confidence else 1.0
        return min(_MEAN_TOKENS_EMBEDDED[benchmark] * stated, max_length)
    usual, long = _MEAN_TOKENS.get(benchmark, _MEAN_TOKENS_UNKNOWN)
    return min(long if max_length > _LONG_FROM else usual, max_length)
