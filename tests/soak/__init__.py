"""Tests that take minutes. Their names keep them out of a plain run; `make soak` names the files."""
