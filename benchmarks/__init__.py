"""Glassformer beside the libraries one would take instead: `python -m benchmarks`, or `make bench`."""
