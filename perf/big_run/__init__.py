"""A large run that is made up, and what the verbs that read it cost: time, memory, bytes read.

    python -m perf.big_run make FOLDER                       100,000 traces of about 1,000 tokens
    python -m perf.big_run measure FOLDER --out FILE.json    each verb in a process of its own

`make` writes a run of two generators and two benchmarks through the store's own tables, a few
hundred rows at a time. The numbers are random but shaped like real ones, at full precision, so
that they take as much space as real ones: most divergences near 0, a few large ones, more of them
in wrong responses. The seed decides all of it.

`measure` works on a copy whose large files are links, so the run stays as it was made. A process
that grows beyond --limit-gb is stopped, and the result says so. Files are read once beforehand:
they come from memory where there is room for them. Linux only.
"""
