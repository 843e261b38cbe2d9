"""A smaller copy of a model that learns to read as the model does: an auxiliary made of it.

Some of its layers are kept (`layers`), the copy's next-token distributions are brought near to the
model's (`kl`, `train`), and the result is an ordinary model folder with a card (`folder`, `card`).
It knows rows of token ids and loaded models; no run and no benchmark.
"""
