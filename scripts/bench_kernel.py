#!/usr/bin/env python3
"""Speed of the Monte Carlo kernel beside vectorised numpy, in one run.

Both evaluate the same graph: a 1F1B pipeline of 16 stages and 64 microbatches with forward 1, backward
2 and transfer 0.05, lognormal noise of log-s.d. 0.05 (transfers 0.3), and a factor per stage and sample
of log-s.d. 0.03. numpy is used as one would who knows it: single precision, SFC64, in place, buffers
reused, one operation after the other over a vector of samples. Times are thread CPU time on one
thread, the best of several runs, numpy before and after the kernel; the ratio uses numpy's best.

    python3 scripts/bench_kernel.py [--bench-command CMD] [--samples N]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

# A build of OpenBLAS pinned to an old core also pins numpy's own dispatch in some set-ups.
os.environ.pop("OPENBLAS_CORETYPE", None)

try:
    import numpy as np
except ImportError:
    sys.exit("numpy is not installed; try `pip install numpy`")

STAGES, MICROBATCHES = 16, 64
FORWARD, BACKWARD, TRANSFER = 1.0, 2.0, 0.05
COMPUTE_SIGMA, TRANSFER_SIGMA, SPATIAL_SIGMA = 0.05, 0.3, 0.03
TARGETS = {
    ("AVX2", "plain"): 7,
    ("AVX-512", "plain"): 25,
    ("AVX-512", "antithetic"): 45,
}


def stage_order(stage: int) -> list[tuple[bool, int]]:
    """Work of a stage under 1F1B as (is backward, microbatch)."""
    warm = min(STAGES - 1 - stage, MICROBATCHES)
    order = [(False, m) for m in range(warm)]
    for m in range(warm, MICROBATCHES):
        order += [(False, m), (True, m - warm)]
    return order + [(True, m) for m in range(MICROBATCHES - warm, MICROBATCHES)]


def build_graph() -> tuple[list[tuple[float, int, tuple[int, ...]]], list[int]]:
    """Operations as (mean, stage or -1 for a transfer, predecessors) by mean start time, and sinks."""
    orders = [stage_order(s) for s in range(STAGES)]
    done, free, last = [0] * STAGES, [0.0] * STAGES, [-1] * STAGES
    arrived: dict[tuple[bool, int, int], tuple[int, float]] = {}
    ops: list[tuple[float, int, tuple[int, ...]]] = []

    def start(s: int) -> float:
        if done[s] == len(orders[s]):
            return math.inf
        backward, m = orders[s][done[s]]
        if s == (STAGES - 1 if backward else 0):
            return free[s]
        arrival = arrived.get((backward, s, m))
        return max(free[s], arrival[1]) if arrival else math.inf

    while any(done[s] < len(orders[s]) for s in range(STAGES)):
        s = min(range(STAGES), key=start)
        backward, m = orders[s][done[s]]
        mean = BACKWARD if backward else FORWARD
        deps = (last[s], arrived.get((backward, s, m), (-1, 0.0))[0])
        end = start(s) + mean
        ops.append((mean, s, tuple(d for d in deps if d >= 0)))
        last[s], free[s], done[s] = len(ops) - 1, end, done[s] + 1
        to = s - 1 if backward else s + 1
        if 0 <= to < STAGES:
            ops.append((TRANSFER, -1, (last[s],)))
            arrived[backward, to, m] = (len(ops) - 1, end + TRANSFER)
    return ops, last


def simulate(graph, sinks, samples: int, rng: np.random.Generator) -> np.ndarray:
    """Step times of `samples` samples."""
    f32 = np.float32

    def lognormal(out: np.ndarray, mean: float, sigma: float) -> np.ndarray:
        rng.standard_normal(out=out, dtype=f32)
        out *= f32(sigma)
        out += f32(math.log(mean) - 0.5 * sigma * sigma)
        return np.exp(out, out=out)

    factors = [lognormal(np.empty(samples, f32), 1.0, SPATIAL_SIGMA) for _ in range(STAGES)]
    last_use = [len(graph)] * len(graph)
    for i, (_, _, deps) in enumerate(graph):
        for d in deps:
            last_use[d] = i
    for s in sinks:
        last_use[s] = len(graph)
    ends: list = [None] * len(graph)
    pool: list[np.ndarray] = []
    scratch = np.empty(samples, f32)
    for i, (mean, stage, deps) in enumerate(graph):
        x = pool.pop() if pool else np.empty(samples, f32)
        lognormal(x, mean, COMPUTE_SIGMA if stage >= 0 else TRANSFER_SIGMA)
        if stage >= 0:
            x *= factors[stage]
        if len(deps) == 1:
            x += ends[deps[0]]
        elif deps:
            x += np.maximum(ends[deps[0]], ends[deps[1]], out=scratch)
        ends[i] = x
        for d in deps:
            if last_use[d] == i:
                pool.append(ends[d])
                ends[d] = None
    step = ends[sinks[0]]
    for s in sinks[1:]:
        step = np.maximum(step, ends[s])
    return step


def time_numpy(graph, sinks, samples: int, repeats: int) -> tuple[float, float]:
    """Best ns per operation and sample, and the mean step time as a check."""
    rng = np.random.Generator(np.random.SFC64(1))
    best, mean = math.inf, 0.0
    for _ in range(repeats):
        began = time.thread_time()
        step = simulate(graph, sinks, samples, rng)
        best = min(best, time.thread_time() - began)
        mean = float(step.mean())
    return best * 1e9 / (samples * len(graph)), mean


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--bench-command",
        default="cargo bench --quiet -p prism-engine --bench kernel -- --figures",
        help="prints one JSON figure per line",
    )
    parser.add_argument("--samples", type=int, nargs="+", default=[4000, 16000], metavar="N")
    arguments = parser.parse_args()
    command = shlex.split(arguments.bench_command)
    graph, sinks = build_graph()
    # Builds first, so that the compiler does not run beside the measurement.
    if command[:2] == ["cargo", "bench"]:
        build = command[: command.index("--")] if "--" in command else command
        subprocess.run([*build, "--no-run"], check=True, cwd=Path(__file__).parent.parent)

    def numpy_figure() -> float:
        results = [time_numpy(graph, sinks, n, 4) for n in arguments.samples]
        for n, (ns, mean) in zip(arguments.samples, results, strict=True):
            print(f"numpy float32, {n:6} samples   {ns:8.3f} ns/op-sample   mean step {mean:.3f}")
        return min(ns for ns, _ in results)

    before = numpy_figure()
    kernel = subprocess.run(
        command, check=True, text=True, stdout=subprocess.PIPE, cwd=Path(__file__).parent.parent
    )
    numpy_ns = min(before, numpy_figure())
    print(f"\nnumpy {np.__version__}, best {numpy_ns:.3f} ns per operation and sample\n")
    print(f"{'case':32} {'path':9} {'mode':11} {'figure':>10}  {'ratio':>7}  target")
    for line in kernel.stdout.splitlines():
        if not line.startswith("{"):
            continue
        f = json.loads(line)
        ratio = target = ""
        if f["case"].startswith("pipeline"):
            ratio = f"{numpy_ns / f['value']:.1f}x"
            wanted = TARGETS.get((f["isa"], f["mode"]))
            target = f"{wanted}x" if wanted else ""
        unit = f["unit"]
        print(
            f"{f['case']:32} {f['isa']:9} {f['mode']:11} {f['value']:10.4f}  {ratio:>7}  {target:6} {unit}"
        )


if __name__ == "__main__":
    main()
