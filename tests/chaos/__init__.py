"""A whole installation under random faults: `python -m tests.chaos --seed 7 --seconds 60`, or `make chaos`."""
