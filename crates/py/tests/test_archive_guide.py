"""The blocks of docs/how-to/archive.md, each run as it stands in a folder with some music."""

import os
import pathlib
import re
import subprocess
import sys

from conftest import write_wave

from aulos import archive

GUIDE = pathlib.Path(__file__).parents[3] / "docs/how-to/archive.md"


def test_the_blocks_of_the_guide_measure_the_same(aulos_program, tmp_path):
    (tmp_path / "music").mkdir()
    for number in range(40):
        write_wave(tmp_path / "music" / f"{number}.wav", 1, seed=number)
    (tmp_path / "music" / "text.flac").write_text("no sound")
    blocks = re.findall(r"^```(sh|python)\n(.*?)^```$", GUIDE.read_text(), re.M | re.S)
    assert [kind for kind, _ in blocks] == ["sh", "python", "python", "python"]
    path = os.pathsep.join([os.path.dirname(aulos_program), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "RAY_USAGE_STATS_ENABLED": "0"}
    outputs = []
    for kind, text in blocks:
        script = tmp_path / f"block.{kind}"
        script.write_text(text)
        command = ["sh", "-e"] if kind == "sh" else [sys.executable]
        run = subprocess.run(
            [*command, script], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        # The program reports the file that is no audio in its exit code too.
        assert run.returncode == (3 if kind == "sh" else 0), run.stderr
        outputs.append(run.stdout)
    assert outputs[1:] == [
        "41 files, 1 with errors\n",
        "40 measured, 1 with errors, 0 known before\n",
        "41 files\n",
    ]
    assert len((tmp_path / "music.jsonl").read_text().splitlines()) == 41
    tables = [archive.read(tmp_path / name) for name in ("loudness", "loudness-ray", "loudness-dask")]
    assert len({str(sorted(table.to_pylist(), key=str)) for table in tables}) == 1
