"""Real engine gateways before the workers of a test: installed once into a venv of their own, run for the length of a `with` block."""
