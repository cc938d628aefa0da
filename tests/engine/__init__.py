"""Tests against a real vLLM 0.32.0 on the CPU, with tiny models made on the spot. `make test-engine` installs and runs them."""
