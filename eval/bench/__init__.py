"""Benchmarks: ``python -m eval.bench.NAME [--json OUT]``; each prints a ratio taken in one run."""
