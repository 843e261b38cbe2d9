"""Models from GGUF files: read once through transformers, then from a copy in safetensors.

`header` reads what a file says about itself, `convert` makes the copy, `cache` keeps it. Knows
nothing of what the model is then used for.
"""
