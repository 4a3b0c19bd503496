#!/usr/bin/env python3
"""Time of `prism predict` and `prism search` on planned jobs, whole processes.

    cargo build --release -p prism-cli
    python3 scripts/bench_plan.py [--repeats N] [--prism PATH]

Prints median and range of the wall time of: the distribution of a pipelined job on 131,072 GPUs, that of
a fully sharded one, and the search over every plan of GPT-3 175B on 1,024 GPUs. Needs nothing but Python.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
GPT3 = """[model]
preset = "gpt3-175b"
[training]
seq_len = 2048
global_batch_size = 2048
micro_batch_size = 1
[parallelism]
tensor_parallel_degree = 8
pipeline_parallel_degree = 16
[cluster]
preset = "h100-dgx"
gpus = 1024
"""


def main() -> None:
    """Runs each command some times and prints how long it took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5, metavar="N")
    parser.add_argument("--prism", default=str(REPOSITORY / "target/release/prism"), metavar="PATH")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "gpt3.toml"
        job.write_text(GPT3)
        cases = {
            "predict, 131,072 GPUs": ["predict", str(REPOSITORY / "examples/gpt-131072.toml")],
            "predict, fully sharded": ["predict", str(REPOSITORY / "examples/llama-8b-fsdp.toml")],
            "search, 175B on 1,024 GPUs": ["search", str(job), "--gpus", "1024"],
        }
        for name, command in cases.items():
            seconds = []
            for _ in range(args.repeats):
                began = time.perf_counter()
                whole = [args.prism, *command, "-qq"]
                done = subprocess.run(whole, capture_output=True, text=True, check=False)
                seconds.append(time.perf_counter() - began)
                if done.returncode != 0:
                    sys.exit(done.stderr)
            middle = statistics.median(seconds)
            print(f"{name:<28} median {middle:6.2f} s   range {min(seconds):.2f} to {max(seconds):.2f} s")


if __name__ == "__main__":
    main()
