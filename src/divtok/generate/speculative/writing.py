"""A generator and its auxiliary that write together: jobs in, trajectories and traces out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from divtok.divergences.divergence import Divergence
from divtok.errors import ConfigError, ModelError
from divtok.generate.decoding import Ask, Written, as_written, check_ends, in_portions
from divtok.generate.jobs import Job, shared_sampling, written_by
from divtok.generate.speculative.blocks import Blocks, check_blocks
from divtok.generate.speculative.chances import Chances
from divtok.generate.speculative.recorder import Columns, Recorder
from divtok.generate.speculative.rounds import Spoken, write_in_rounds
from divtok.generate.steps import Row, small_steps
from divtok.generate.threads import threads_for
from divtok.models.load import LoadedModel
from divtok.records import Sampling, Trace, Trajectory
from divtok.trace.batches import row_of
from divtok.trace.pair import Pair, check_reads_all, trace_from
from divtok.trace.reader import make_reader


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SpeculativePair:
    """Two loaded models that were checked to fit together; see `make_pair`.

    `drafts` tokens are drafted in a round. `pair` is how tracing sees the same two models.
    """

    generator: LoadedModel
    auxiliary: LoadedModel
    pair: Pair
    drafts: int
    divergences: Sequence[Divergence] = ()

    def generate_batch(self, jobs: Sequence[Job]) -> list[tuple[Trajectory, Trace | None]]:
        """One trajectory for each job, in order, and its trace, of which failed ones have none."""
        sampling = shared_sampling(jobs)
        self._check_length(sampling)
        read: dict[str, Columns] = {}

        def write(asks: Sequence[Ask]) -> list[Written]:
            portions = in_portions(self.generator.model, asks, partial(self._speak, sampling))
            read.update(
                (ask.key, columns) for ask, (_, columns) in zip(asks, portions, strict=True)
            )
            return [as_written(spoken.token_ids, self.generator) for spoken, _ in portions]

        trajectories = written_by(
            write, self.generator.tokenizer, jobs, context_length=self.generator.context_length
        )
        return [(t, self._trace(t, read)) for t in trajectories]

    def speak(
        self, asks: Sequence[Ask], sampling: Sampling, recorder: Recorder | None = None
    ) -> list[Spoken]:
        """What is written behind each prompt, in order."""
        import torch

        check_ends(self.generator)
        chances = Chances(
            [ask.key for ask in asks],
            sampling,
            width=self.generator.tokenizer_width,
            drafts=self.drafts,
            device=self.generator.device,
        )
        width: int | None = getattr(self.generator.model.config, "hidden_size", None)
        with ExitStack() as stack:
            stack.enter_context(torch.inference_mode())
            stack.enter_context(threads_for(self.generator.device, width))
            for loaded in (self.generator, self.auxiliary):
                stack.enter_context(small_steps(loaded.model))
            return write_in_rounds(
                Blocks(self.generator),
                Blocks(self.auxiliary),
                [Row(number, ask.prompt, ask.limit) for number, ask in enumerate(asks)],
                chances,
                end_ids=self.generator.end_ids,
                recorder=recorder,
            )

    def recorder(self) -> Recorder:
        """For one call of `speak`."""
        return Recorder(
            self.pair.p.head,
            self.pair.q.head,
            vocab_size=self.pair.vocab_size,
            others=self.divergences,
        )

    def _speak(self, sampling: Sampling, asks: Sequence[Ask]) -> list[tuple[Spoken, Columns]]:
        recorder = self.recorder()
        spoken = self.speak(asks, sampling, recorder)
        return list(zip(spoken, recorder.columns(len(asks)), strict=True))

    def _trace(self, trajectory: Trajectory, read: Mapping[str, Columns]) -> Trace | None:
        if trajectory.failed:
            return None
        names = [divergence.column for divergence in self.divergences]
        return trace_from(self.pair, row_of(trajectory), read[trajectory.key], names)

    def _check_length(self, sampling: Sampling) -> None:
        """Refuse responses that the auxiliary could not read to their ends."""
        longest = min(sampling.max_length, self.generator.context_length or sampling.max_length)
        most = self.auxiliary.context_length
        if most is not None and longest > most:
            raise ConfigError(
                f"Responses may have {longest} tokens with their prompts, and the auxiliary "
                f"'{self.auxiliary.name}' reads {most}.",
                next_step=f"Use sampling.max_length={most}, or generate.engine=transformers.",
            )


def make_pair(
    generator: LoadedModel,
    auxiliary: LoadedModel,
    *,
    drafts: int,
    divergences: Sequence[Divergence] = (),
) -> SpeculativePair:
    """Both models checked; ModelError where they cannot write together."""
    pair = Pair(make_reader(generator), make_reader(auxiliary))
    for loaded in (generator, auxiliary):
        check_blocks(loaded)
    if generator.device != auxiliary.device:
        raise ModelError(
            f"The generator '{generator.name}' takes its tokens on {generator.device}, and its "
            f"auxiliary '{auxiliary.name}' on {auxiliary.device}.",
            next_step="Put both on one device (generate.device), or use "
            "generate.engine=transformers.",
        )
    check_reads_all(
        generator,
        pair.q,
        next_step="Use an auxiliary with the generator's own tokenizer, or "
        "generate.engine=transformers.",
    )
    return SpeculativePair(generator, auxiliary, pair, drafts, divergences)
