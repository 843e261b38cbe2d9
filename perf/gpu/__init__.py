"""Everything that only a GPU can show, in one command: `make gpu`, or `python -m perf.gpu`.

First whether it is right (kernels, reading, writing, a whole run), then how fast it is: with
lengths the program has not met before, and with lengths it has. Needs torch, triton and
transformers on the machine, and nothing that has to be installed beside what divtok itself needs.
"""
