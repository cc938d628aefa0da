"""Benchmarks. ``make bench`` runs every ``bench_*.py`` here: CPU time, best of N, ratios within one run."""
