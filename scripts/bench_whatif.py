#!/usr/bin/env python3
"""Time of `prism whatif TRACE` beside the numpy prototype of the same analysis, in one run.

Both read the same Parquet trace and compute the same figures: step times with and without launch
delays, slowdowns by operation type, stage, replica and worker, M_W and M_S. The prototype
(`whatif_numpy.py`) is imported, so that its time is its own reading and analysis without starting
Python or importing numpy and pandas; the command's is that of the whole process. Runs alternate. One
run of each goes before, unmeasured, and the slowdown S is compared.

    python3 scripts/bench_whatif.py [--job AR] [--repeats N] [--prism PATH]

Needs numpy, pandas, pyarrow and pyyaml, and the folder that holds `prototype` and `data`, from
$PRISM_SHARED or beside the repository.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent


def prototype(folder: Path):
    """The module `whatif_numpy`."""
    path = folder / "prototype" / "whatif_numpy.py"
    if not path.exists():
        sys.exit(f"{path} is missing; set PRISM_SHARED to the folder that holds `prototype` and `data`")
    spec = importlib.util.spec_from_file_location("whatif_numpy", path)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        sys.exit(f"{error.name} is not installed; try `pip install numpy pandas pyarrow pyyaml`")
    return module


def timed(run) -> tuple[float, float]:
    """Wall seconds, and the slowdown S that the run found."""
    began = time.perf_counter()
    slowdown = run()
    return time.perf_counter() - began, slowdown


def show(name: str, seconds: list[float]) -> None:
    low, middle, high = min(seconds), statistics.median(seconds), max(seconds)
    print(f"{name:<28} median {middle * 1e3:8.1f} ms   range {low * 1e3:.1f} to {high * 1e3:.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--job", default="AR", choices=["AR", "ST"])
    parser.add_argument("--repeats", type=int, default=15, metavar="N")
    target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    parser.add_argument("--prism", type=Path, default=target / "release" / "prism", metavar="PATH")
    arguments = parser.parse_args()
    if not arguments.prism.exists():
        sys.exit(f"{arguments.prism} is missing; build it with `cargo build --release -p prism-cli`")
    shared = Path(os.environ.get("PRISM_SHARED", REPOSITORY.parent / "shared"))
    module = prototype(shared)
    data = shared / "data" / "straggler"
    command = [arguments.prism, "whatif", data / f"trace-{arguments.job}.parquet", "--json"]

    def numpy_run() -> float:
        return float(module.analyse(module.load(arguments.job, data=str(data)))["S"])

    def prism_run() -> float:
        out = subprocess.run(command, check=True, capture_output=True).stdout
        # Read after the clock would be fairer still to prism; it takes well under a millisecond.
        return json.loads(out)["slowdown"]["value"]

    slowdowns = {numpy_run(), prism_run()}
    ours, theirs = [], []
    for _ in range(arguments.repeats):
        for run, times in ((numpy_run, theirs), (prism_run, ours)):
            seconds, slowdown = timed(run)
            times.append(seconds)
            slowdowns.add(slowdown)
    spread = max(slowdowns) / min(slowdowns) - 1
    print(f"{arguments.job}, {arguments.repeats} runs of each in turn, {os.cpu_count()} CPUs")
    show("numpy, load + analyse", theirs)
    show("prism whatif, whole process", ours)
    pairs = [b / a for a, b in zip(ours, theirs, strict=True)]
    print(
        f"numpy / prism: {statistics.median(theirs) / statistics.median(ours):.1f} "
        f"(pairs {min(pairs):.1f} to {max(pairs):.1f}); S equal to {spread:.0e}"
    )
    if spread > 1e-6:
        sys.exit("the two disagree about S")


if __name__ == "__main__":
    main()
