"""Compiles all kernels for the processor of wheels, and lays them out as a wheel brings them.

    python packaging/kernels.py build/kernels

Run it with each minor version of Python that the wheel is to serve, on each architecture; `make wheel` runs it with
one, and builds the wheel from what it leaves. It takes some minutes of processor time.
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the kernels go")
    parser.add_argument("--first", action="store_true", help="only what a first release needs: for tests")
    arguments = parser.parse_args()
    from consilience.kernels.kernel_cache import SHIPPED_FOR

    processor, _ = SHIPPED_FOR[platform.machine()]
    with tempfile.TemporaryDirectory() as place:
        environment = {"NUMBA_CPU_NAME": processor, "NUMBA_CPU_FEATURES": "", "NUMBA_CACHE_DIR": place}
        all_of_them = [] if arguments.first else ["--everything"]
        command = [sys.executable, "-m", "consilience.cli.main", "warm-up", *all_of_them]
        subprocess.run(command, env=os.environ | environment, check=True)
        collect(Path(place), arguments.folder, processor)


def collect(compiled: Path, folder: Path, processor: str) -> None:
    """Copy what numba left, in folders that it names by a digest, to folders that are named as the package's own."""
    from consilience.kernels.kernel_cache import PACKAGE, caching, folder_for

    out = folder / folder_for(processor)
    shutil.rmtree(out, ignore_errors=True)
    for home in {path.parent for path in PACKAGE.rglob("*.py")}:
        left = compiled / caching._CacheLocator.get_suitable_cache_subpath(str(home / "any.py"))
        if left.is_dir():
            shutil.copytree(left, out / home.relative_to(PACKAGE), dirs_exist_ok=True)
    files = list(out.rglob("*.nbc"))
    print(f"wrote {len(files):,} kernels, {sum(path.stat().st_size for path in files) / 1e6:,.1f} MB, to {out}")


if __name__ == "__main__":
    main()
