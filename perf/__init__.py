"""Speed and memory of tracing, side by side with other ways to do the same work.

    python -m perf run --section cpu-heads      measure one section on this machine
    python -m perf render                       the docs pages from all stored results

Sections: `*-heads` is the head stage alone (hidden states in, per-token numbers out), `*-pair` a
whole pair of models; `estimators` is no matter of speed, it holds divtok's estimators against other
packages'. Results are stored per section, so a machine without a GPU keeps the GPU's. `perf.gpu`
has everything else that only a GPU can show, `perf.processors` what another processor changes.
"""
