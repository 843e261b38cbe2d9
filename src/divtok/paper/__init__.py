"""The paper's tables and figures as recipes: which runs they need, and how they are made of them.

`recipe` reads the recipes, `run_tables` what the runs hold; `tables` and the `*figures` make the
exhibits, `claims` checks the paper's findings, `page` gathers it all. Nothing here loads a model:
that is left to the stages that make a run.
"""
