"""The log-probs that a generator's server reported while it sampled; they come with responses."""

from __future__ import annotations

from divtok.config.run import RunConfig
from divtok.evidence.kind import EvidenceKind, Find, Gathering, Lacking, register
from divtok.evidence.readings import READINGS
from divtok.records import Reading
from divtok.store.responses import Response
from divtok.store.run import Run


class SampledKind(EvidenceKind[Reading]):
    name = "sampled"
    summary = "Log-probabilities that the generator's server reported while it sampled."
    layout = READINGS

    def refuse(self, config: RunConfig) -> Lacking | None:
        if config.engine.gives_logprobs(config.generate.engine_options()):
            return None
        return Lacking(
            "no server was asked for log-probs while it sampled",
            "generate.engine=api and generate.api.logprobs=true",
        )

    def find(self, work: Gathering) -> Find[Reading]:
        rows = work.run.table(READINGS).lookup()

        def found(response: Response) -> Reading | None:
            return rows.get((response.key, response.generator, "sampled"))

        return found

    def failures(self, run: Run) -> list[str]:
        return []  # what a server did not report with its response cannot be asked for again


SAMPLED = register(SampledKind())
