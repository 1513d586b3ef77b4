"""Build the sdist and the wheel, and import the wheel where nothing else is installed.

A warning, or a file out of place, is an error.
"""

import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

DIST = Path("dist")
PACKAGE = {path.as_posix() for path in Path("rlaxlib").rglob("*.py")}
PACKAGE |= {"rlaxlib/aliases.toml", "rlaxlib/py.typed"}
TO_BUILD = {"LICENSE", "README.md", "pyproject.toml", "requirements.txt", "setup.py"}

shutil.rmtree(DIST, ignore_errors=True)
build = subprocess.run(
    [sys.executable, "-m", "build", f"--outdir={DIST}"],
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
    check=False,
)
if build.returncode or "Warning" in build.stdout:
    sys.exit(f"{build.stdout}\nThe build failed or warned.")

(wheel,) = DIST.glob("*.whl")
with zipfile.ZipFile(wheel) as archive:
    files = {name for name in archive.namelist() if ".dist-info/" not in name}
if files != PACKAGE:
    sys.exit(f"{wheel} and rlaxlib/ differ in {sorted(files ^ PACKAGE)}.")

(sdist,) = DIST.glob("*.tar.gz")
with tarfile.open(sdist) as archive:
    files = {name.partition("/")[2] for name in archive.getnames()}
if missing := (PACKAGE | TO_BUILD) - files:
    sys.exit(f"{sdist} lacks {sorted(missing)}.")

# The wheel alone, with what it requires.
alone = Path("build", "alone")
venv.create(alone, clear=True, with_pip=True)
python = alone / "bin" / "python"
subprocess.run([python, "-m", "pip", "install", "--quiet", wheel], check=True)
program = "import rlaxlib; print(rlaxlib.td_learning(1.0, 2.0, 0.5, 4.0))"
run = [python.absolute(), "-c", program]
subprocess.run(run, check=True, cwd=alone)  # Not beside the sources.

print(f"{sdist} builds {wheel}, which holds rlaxlib/ and nothing else.")
