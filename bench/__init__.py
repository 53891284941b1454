"""Benches: each subject runs interleaved with its anchor, and the median of the ratios is held against a goal."""
