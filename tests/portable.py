"""The quick tests under other arithmetic: what a computer rounds differently must not change whether they pass.

    python tests/portable.py                                 every arithmetic, one after the other
    python tests/portable.py openblas-old seed-1             two of them
    python tests/portable.py --list
    python tests/portable.py numba-generic -- -x tests/laws  what follows -- goes to pytest

Each arithmetic changes one thing of the machine's own: the processor that kernels are compiled for, the one that linear
algebra takes itself to be on, the instructions that numpy may use, the number of threads, or the examples that
Hypothesis draws. What the tests print is kept in `.portable/NAME.log`.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from numpy._core import _multiarray_umath as numpy_core

ROOT = Path(__file__).parents[1]
LOGS = ROOT / ".portable"


@dataclass(frozen=True)
class Arithmetic:
    """A change of the machine's arithmetic: variables of the environment, and options of pytest."""

    name: str
    about: str
    variables: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ("-m", "not slow")


def arithmetics() -> list[Arithmetic]:
    """Those that this machine can carry out.

    A core that OpenBLAS was built without falls back to a similar one. numpy switches off only what it dispatches and
    the processor has.
    """
    held = [name for name in numpy_core.__cpu_dispatch__ if numpy_core.__cpu_features__.get(name)]
    wide = [name for name in held if name.startswith("AVX512") or name == "X86_V4"]
    found = [
        Arithmetic("numba-generic", "kernels without vector instructions", {"NUMBA_CPU_NAME": "generic"}),
        Arithmetic("openblas-old", "linear algebra of 2004", {"OPENBLAS_CORETYPE": "Prescott"}),
        Arithmetic("openblas-haswell", "linear algebra with FMA", {"OPENBLAS_CORETYPE": "Haswell"}),
        Arithmetic("openblas-zen", "linear algebra of AMD", {"OPENBLAS_CORETYPE": "Zen"}),
        Arithmetic("threads-1", "one thread in kernels", {"NUMBA_NUM_THREADS": "1"}),
        Arithmetic("threads-2", "two threads in kernels", {"NUMBA_NUM_THREADS": "2"}),
    ]
    if wide:
        found.append(Arithmetic("numpy-avx2", "numpy without AVX512", {"NPY_DISABLE_CPU_FEATURES": " ".join(wide)}))
    if held:
        found.append(Arithmetic("numpy-plain", "numpy without AVX2, FMA", {"NPY_DISABLE_CPU_FEATURES": " ".join(held)}))
    for seed in (1, 2, 3):
        options = ("-m", "hypothesis and not slow", f"--hypothesis-seed={seed}")
        found.append(Arithmetic(f"seed-{seed}", "other examples of Hypothesis", options=options))
    return found


@dataclass(frozen=True)
class Outcome:
    passed: int
    failed: int
    seconds: float
    good: bool


def run(arithmetic: Arithmetic, arguments: list[str]) -> Outcome:
    """How the tests went; what they print is in the log."""
    LOGS.mkdir(exist_ok=True)
    log = LOGS / f"{arithmetic.name}.log"
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "worksteal", *arithmetic.options, *arguments]
    with log.open("w", encoding="utf-8") as stream:
        variables = {**os.environ, **arithmetic.variables}
        code = subprocess.call(command, cwd=ROOT, env=variables, stdout=stream, stderr=subprocess.STDOUT)
    counted = dict.fromkeys(("passed", "failed", "error"), 0)
    text = log.read_text(encoding="utf-8")
    for number, word in re.findall(r"(\d+) (passed|failed|error)", text.rpartition("\n=")[2] or text[-500:]):
        counted[word] = int(number)
    return Outcome(counted["passed"], counted["failed"] + counted["error"], time.monotonic() - began, code == 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="arithmetics by name; all without one")
    parser.add_argument("--list", action="store_true", help="show the names and go")
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options = parser.parse_args(sys.argv[1:split])
    known = {each.name: each for each in arithmetics()}
    if unknown := set(options.names) - set(known):
        parser.error(f"no arithmetic named {', '.join(sorted(unknown))}; choose from {', '.join(known)}")
    chosen = [known[name] for name in options.names or known]
    if options.list:
        for each in chosen:
            print(f"{each.name:18}{each.about}  {' '.join('='.join(pair) for pair in each.variables.items())}")
        return
    print(f"{'arithmetic':18}{'passed':>8}{'failed':>8}{'seconds':>9}", flush=True)
    everything_good = True
    for each in chosen:
        found = run(each, sys.argv[split + 1 :])
        everything_good &= found.good
        print(f"{each.name:18}{found.passed:8}{found.failed:8}{found.seconds:9.0f}", flush=True)
        if not found.good:
            print(f"  see {(LOGS / each.name).relative_to(ROOT)}.log", flush=True)
    sys.exit(not everything_good)


if __name__ == "__main__":
    main()
