"""The one door to weights and tokenizers: folders, GGUF files, the hub, and the packaged family.

`load` reads models, `packaged` knows those that ship with divtok, `gguf/` converts GGUF files and
`errors` explains what can go wrong. It knows no family and no stage.
"""
