"""What fits, how long it takes and what it costs, before anything is spent.

One cost model with two users. `divtok check` asks about one pair on this machine: `model_shapes`
reads its shapes, `machine` times the device, `feasibility` gives the verdict. `divtok paper --plan`
asks about whole runs on machines that need not be here: `models.sizes`, `benchmark_sizes` and
`stored` know what there is to do, `workload` and `plan` add it up, `plan_text` shows it. Bytes are
in `memory`, time is in `speed`, and how both are written for people is in `amounts`.
"""
