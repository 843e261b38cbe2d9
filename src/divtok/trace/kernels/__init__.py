"""Row kernels of the head stage: logits of a chunk of positions in, per-token numbers out."""
