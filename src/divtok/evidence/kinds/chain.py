"""UQAC's attention chains, from the pass of p that makes the traces."""

from __future__ import annotations

from divtok.config.run import RunConfig
from divtok.evidence.kind import EvidenceKind, Find, Gathering, Lacking, Riding, register
from divtok.evidence.uqac.chains import ChainListener
from divtok.families.family import Generator
from divtok.records import Chain
from divtok.store.columns import ids, reason, text
from divtok.store.layout import Layout
from divtok.store.responses import Response
from divtok.store.run import Run

CHAINS = Layout(
    "chains",
    Chain,
    ("key", "model"),
    (
        text("key"),
        text("model"),
        ids("tokens"),
        ids("similar"),
        *reason(),
    ),
)


class ChainKind(EvidenceKind[Chain]):
    name = "chain"
    summary = "The response tokens that attention links to the answer (UQAC)."
    layout = CHAINS

    def refuse(self, config: RunConfig) -> Lacking | None:
        readers = [p for g in config.generator_presets() for p, _ in config.pairs_for(g)]
        if any(p in config.servers for p in readers):
            return Lacking("a server does not give attention", "other estimators")
        return None

    def ride(self, work: Gathering, generator: Generator) -> Riding:
        p, _ = work.config.pair_for(generator)
        return Riding(work.run.table(CHAINS), lambda key: (key, p), ChainListener)

    def alone(self) -> ChainListener:
        return ChainListener()

    def find(self, work: Gathering) -> Find[Chain]:
        readers = {g.model: work.config.pair_for(g)[0] for g in work.config.generator_presets()}
        rows = work.run.table(CHAINS).lookup()

        def found(response: Response) -> Chain | None:
            return rows.get((response.key, readers[response.generator]))

        return found

    def failures(self, run: Run) -> list[str]:
        return []  # where a trace is there, the same pass would find no chain again


CHAIN = register(ChainKind())
