"""Metrics, protocols and baselines: every figure, with the card it holds under."""
