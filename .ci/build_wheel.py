"""Build the sdist, and from it the wheel; refuse a warning, or a file out of place."""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

DIST = Path("dist")
PACKAGE = {path.as_posix() for path in Path("rlaxlib").rglob("*.py")}
PACKAGE.add("rlaxlib/py.typed")
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

print(f"{sdist} builds {wheel}, which holds rlaxlib/ and nothing else.")
