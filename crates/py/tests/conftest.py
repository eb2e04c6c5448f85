"""Signals and files that several tests use."""

import os
import shutil
import subprocess
import wave

import numpy as np
import pytest


def write_wave(path, seconds, *, rate=8_000, channels=1, level=0.1, seed=0):
    """Noise of a level that rises, so that no two parts of a file are equally loud."""
    frames = round(seconds * rate)
    noise = np.random.default_rng(seed).normal(0, level, (frames, channels))
    noise *= np.linspace(0.2, 1, frames)[:, None]
    with wave.open(str(path), "wb") as file:
        file.setparams((channels, 2, rate, 0, "NONE", ""))
        file.writeframes((noise.clip(-1, 1) * 32_767).astype("<i2").tobytes())
    return path


@pytest.fixture(scope="session")
def s3_folder(tmp_path_factory):
    """A bucket `music` of a running S3 server: its endpoint, and the folder of its objects."""
    program = os.path.join(os.environ.get("AULOS_TEST_TOOLS", ""), "s3s-fs")
    if not os.path.isfile(program):
        pytest.skip("no s3s-fs")
    root = tmp_path_factory.mktemp("s3")
    (root / "music").mkdir()
    command = [program, "--host", "127.0.0.1", "--port", "0", "--access-key", "key"]
    server = subprocess.Popen(
        [*command, "--secret-key", "secret", str(root)],
        env={**os.environ, "RUST_LOG": "s3s_fs=info"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    address = next(line.split("http://")[1] for line in server.stdout if "http://" in line)
    yield address.split()[0].strip(), root / "music"
    server.kill()
    server.wait()


@pytest.fixture(scope="session")
def aulos_program():
    """The command line program, to compare with."""
    target = os.environ.get("CARGO_TARGET_DIR", "")
    names = [os.environ.get("AULOS_BINARY"), os.path.join(target, "debug", "aulos")]
    for name in [*names, shutil.which("aulos")]:
        if name and os.access(name, os.X_OK):
            return name
    pytest.skip("no aulos")


def pytest_terminal_summary(terminalreporter):
    """Names what is missing, as the other tests of the project do."""
    for report in terminalreporter.getreports("skipped"):
        terminalreporter.write_line(report.longrepr[2].replace("Skipped", "skipped", 1))
