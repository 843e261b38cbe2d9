"""A run through servers: its generator and both its readers are asked over HTTP.

Ends with 3: one response is too long to be asked about.
"""

import os
import subprocess
import sys

from model_server import ModelServer

P, Q = "divtok/tiny-0.5m", "divtok/tiny-0.3m"
with ModelServer(P, name="writer") as writer, ModelServer(P) as p, ModelServer(Q) as q:
    command = [
        *(sys.executable, "-m", "divtok", "run", "--family", "tiny", "--out", "run"),
        *("--limit", "8", "samples=2", "generators=[writer]", "benchmarks=[arith-hard]"),
        *("--base-url", writer.base_url, "generate.api.logprobs=true"),
        *("generate.api.prompt_price=0.3", "generate.api.completion_price=1.2"),
        *(f"servers.{P}={p.base_url}", f"servers.{Q}={q.base_url}", "trace.server.top_k=2"),
        "score.estimators=[trace, sampled_nsl, sampled_mean_prob, verbalized, verbalized_dtc]",
    ]
    done = subprocess.run(command, env={**os.environ, "OPENAI_API_KEY": "none"})
sys.exit(done.returncode)
