"""A generator whose own hidden states become traces: jobs in, trajectories and traces out.

It writes as it always does, and keeps what it drew each token from. So the text is read by the
auxiliary alone, in packs, once a batch is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from divtok.divergences.divergence import Divergence
from divtok.errors import ModelError
from divtok.generate.decoding import Ask, Written, decode_keeping, in_portions
from divtok.generate.jobs import Job, shared_sampling, written_by
from divtok.generate.kept_states import KeptStates
from divtok.generate.steps import can_step
from divtok.models.load import LoadedModel
from divtok.records import Sampling, Trace, Trajectory
from divtok.trace.batches import Row, plain_ids
from divtok.trace.budget import Budget
from divtok.trace.from_states import read_beside
from divtok.trace.pair import Pair, check_reads_all
from divtok.trace.reader import make_reader


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CapturingPair:
    """Two loaded models that were checked to fit together; see `make_capturing`.

    `pair` is how tracing sees them, and `budget` what the auxiliary may read at once.
    """

    generator: LoadedModel
    pair: Pair
    budget: Budget
    divergences: Sequence[Divergence] = ()

    def generate_batch(self, jobs: Sequence[Job]) -> list[tuple[Trajectory, Trace | None]]:
        """One trajectory for each job, in order, and its trace, of which failed ones have none."""
        sampling, protocols = shared_sampling(jobs), {job.key: job.protocol for job in jobs}
        traces: dict[str, Trace] = {}

        def write(asks: Sequence[Ask]) -> list[Written]:
            made = in_portions(
                self.generator.model, asks, lambda some: self.write(some, sampling, protocols)
            )
            traces.update((trace.key, trace) for _, trace in made)
            return [written for written, _ in made]

        trajectories = written_by(
            write, self.generator.tokenizer, jobs, context_length=self.generator.context_length
        )
        return [(t, None if t.failed else traces[t.key]) for t in trajectories]

    def write(
        self, asks: Sequence[Ask], sampling: Sampling, protocols: Mapping[str, str]
    ) -> list[tuple[Written, Trace]]:
        """What is written behind each prompt, all at once, and what both models say of it.

        `protocols` tell by key how the prompts ask. The states are let go before the next portion.
        """
        kept = KeptStates()
        said = decode_keeping(self.generator, asks, sampling, kept)
        places = {ask.key: place for place, ask in enumerate(asks)}
        rows = [
            Row(
                ask.key,
                plain_ids(ask.prompt, "prompt_ids"),
                plain_ids(written.token_ids, "token_ids"),
                written.text,
                protocols[ask.key],
            )
            for ask, written in zip(asks, said, strict=True)
        ]
        traces = read_beside(
            self.pair,
            rows,
            lambda key: kept.of(places[key]),
            budget=self.budget,
            others=self.divergences,
        )
        return list(zip(said, traces, strict=True))


def make_capturing(
    generator: LoadedModel,
    auxiliary: LoadedModel,
    *,
    budget: Budget | None = None,
    divergences: Sequence[Divergence] = (),
) -> CapturingPair:
    """Both models checked; ModelError where the generator's states cannot be kept."""
    pair = Pair(make_reader(generator), make_reader(auxiliary))
    if not can_step(generator):
        raise ModelError(
            f"The model '{generator.name}' is not written in steps, so its hidden states cannot be "
            "kept while it writes.",
            next_step="Leave out generate.transformers.capture: divtok trace reads in a pass of "
            "its own.",
        )
    check_reads_all(
        generator,
        pair.q,
        next_step="Use an auxiliary with the generator's own tokenizer, or leave out "
        "generate.transformers.capture.",
    )
    return CapturingPair(generator, pair, budget or Budget(), divergences)
