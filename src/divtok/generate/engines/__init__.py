"""What trajectories come from: transformers, vLLM or a server."""
