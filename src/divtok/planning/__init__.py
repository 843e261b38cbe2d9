"""What a recipe would cost before anything is spent, and what is there already.

`model_facts` and `costs` hold the figures, `workload` what a config asks for, `stored` what a run
folder holds; `plan` brings them together and `text` writes it out. Loads no model.
"""
