"""What gating costs on real vLLM workers, counted in tokens. ``make bench-engine`` runs it, ``python -m tests.bench.engine --only seed`` a part.

Tokens are the engines' own counts: ``usage`` of each agent call and the difference of ``vllm:prompt_tokens_by_source_total`` around a
scenario, with nothing else in flight. Times appear as ratios within one run alone.
"""
