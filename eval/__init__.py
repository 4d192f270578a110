"""How good it is: pairs, benchmarks, training of the reuse confidence."""
