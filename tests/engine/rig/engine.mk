# Tests against a real vLLM on the CPU. The first run installs it into .engine (3.5 GB, about two minutes); later ones find it there.
.PHONY: test-engine test-engine-all bench-engine

test-engine: $(STAMP) ## tests against a real vLLM 0.32 on the CPU, installed on first use
	$(BIN)/python -m tests.engine.rig.install
	$(BIN)/python -m pytest -q -p no:xdist -m "not engine_all" tests/engine

test-engine-all: $(STAMP) ## the same for every served architecture, and with vLLM 0.31
	$(BIN)/python -m tests.engine.rig.install --with-0.31
	$(BIN)/python -m pytest -q -p no:xdist tests/engine

bench-engine: $(STAMP) ## tokens computed on two real vLLM workers, gated four ways; predictions and losses (ONLY=seed,ten,…)
	$(BIN)/python -m tests.engine.rig.install
	$(BIN)/python -m tests.bench.engine $(if $(ONLY),--only $(ONLY))
