"""The rig: `install` brings vLLM, `tiny_models` makes models, `server` runs the two together."""
