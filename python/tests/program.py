"""The gtc binary for the tests that run it: $GTC, or what this tree builds."""

import atexit
import functools
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))


@functools.cache
def gtc():
    """The path of the binary, which gtc.run and its like find in $GTC as well."""
    if "GTC" not in os.environ:
        folder = tempfile.mkdtemp(prefix="gtc-")
        atexit.register(shutil.rmtree, folder)
        path = os.path.join(folder, "gtc")
        subprocess.run(["go", "build", "-o", path, "./cmd/gtc"], cwd=ROOT, check=True)
        os.environ["GTC"] = path
    return os.environ["GTC"]


def run(*args, code=0):
    """What gtc prints, on both streams; AssertionError when it does not end with `code`."""
    done = subprocess.run([gtc(), *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != code:
        raise AssertionError(f"gtc {' '.join(map(str, args))}: exit code {done.returncode}, not {code}\n{done.stdout}")
    return done.stdout
