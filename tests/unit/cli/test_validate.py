from __future__ import annotations

import io
import sys
from pathlib import Path

from gpurun.cli.validate import STDIN, validate_file

GOOD = f"version: 1\njobs:\n  smoke:\n    image: registry.example/app@sha256:{'a' * 64}\n    run: echo hi\n"
TWO_FAULTS = GOOD + "    imag: x\n  other: {rnu: 1}\n"


def test_a_good_file_names_its_jobs(tmp_path, capsys):
    (tmp_path / "f.yml").write_text(GOOD)
    assert validate_file(tmp_path / "f.yml") == 0
    assert capsys.readouterr().out == f"{tmp_path}/f.yml is fine. Jobs: smoke.\n"


def test_every_fault_with_line_column_and_caret(tmp_path, capsys):
    (tmp_path / "f.yml").write_text(TWO_FAULTS)
    assert validate_file(tmp_path / "f.yml") == 2
    told = capsys.readouterr().err
    assert f"{tmp_path}/f.yml:6:5: unknown key `imag`" in told
    assert "6 |     imag: x\n  |     ^" in told
    assert f"{tmp_path}/f.yml:7:" in told


def test_stdin(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TWO_FAULTS.encode())))
    assert validate_file(STDIN) == 2
    assert "stdin:6:5: unknown key `imag`" in capsys.readouterr().err


def test_a_path_without_a_file(tmp_path, capsys):
    assert validate_file(tmp_path / "none.yml") == 2
    assert validate_file(Path(tmp_path)) == 2
    told = capsys.readouterr().err
    assert f"{tmp_path}/none.yml cannot be read: No such file or directory." in told
    assert f"{tmp_path} cannot be read: Is a directory." in told
