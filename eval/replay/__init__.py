"""A log once more: through the decision code with the recorded answers, or through two live chains."""
