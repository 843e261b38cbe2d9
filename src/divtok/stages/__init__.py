"""The stages over a run folder: `stages` makes rows with models, `results` reads them off.

The only place where the store, the config and the stages meet. The command line is a thin layer on
top of it, and nothing below it knows that runs exist.
"""
