"""How likely a step is slower than x % above the noise-free one, from 8 to 131,072 GPUs.

    cargo build --release -p prism-cli
    python scripts/slowdown_at_scale.py [PRISM] > docs/slowdown-at-scale.md

Runs `prism predict` on examples/gpt-131072.toml with fewer replicas and stages, and writes a table to
standard output and the plot to docs/slowdown-at-scale.svg. Needs nothing but Python.
"""

import json
import math
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
JOB = "examples/gpt-131072.toml"
ABOVE = [0.01, 0.02, 0.03, 0.05]
# GPUs, pipeline stages, replicas; tensor parallel 8, 32 microbatches a replica. The model shrinks with the
# stages, so that every GPU has six layers' work.
SIZES = [
    (8, 1, 1),
    (64, 8, 1),
    (512, 16, 4),
    (4096, 16, 32),
    (16384, 16, 128),
    (65536, 16, 512),
    (131072, 16, 1024),
]
PRESETS = ["dedicated", "power-limited", "lemon"]


def predict(prism, preset, gpus, stages, replicas):
    """One prediction as JSON."""
    sets = {
        "cluster.gpus": gpus,
        "model.num_hidden_layers": 6 * stages,
        "parallelism.pipeline_parallel_degree": stages,
        "parallelism.data_parallel_shard_degree": replicas,
        "training.global_batch_size": 32 * replicas,
        "variability.preset": json.dumps(preset),
    }
    command = [prism, "predict", JOB, "--json", "-q"]
    for above in ABOVE:
        command += ["--slowdown", f"{100 * above:g}%"]
    for key, value in sets.items():
        command += ["--set", f"{key}={value}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def percent(p):
    """A probability in per cent, without false digits."""
    return f"{100 * p:.0f} %" if 0.1 <= p <= 0.9 else f"{100 * p:.1f} %"


def plot(curves):
    """Probability of a slow-down above 3 % against GPUs, as SVG."""
    width, height, left, bottom = 640, 320, 60, 40
    colours = {"dedicated": "#1f77b4", "power-limited": "#d62728", "lemon": "#2ca02c"}
    gpus = [g for g, _, _ in SIZES]
    low, high = math.log2(gpus[0]), math.log2(gpus[-1])

    def x(g):
        return left + (math.log2(g) - low) / (high - low) * (width - left - 110)

    def y(p):
        return height - bottom - p * (height - bottom - 20)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for p in (0, 0.25, 0.5, 0.75, 1):
        out.append(f'<line x1="{left}" x2="{width - 110}" y1="{y(p):.1f}" y2="{y(p):.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{left - 8}" y="{y(p) + 4:.1f}" text-anchor="end">{100 * p:.0f} %</text>')
    for g in gpus:
        out.append(f'<text x="{x(g):.1f}" y="{height - bottom + 18}" text-anchor="middle">{g:,}</text>')
    out.append(f'<text x="{(left + width - 110) / 2}" y="{height - 6}" text-anchor="middle">GPUs</text>')
    for preset, ps in curves.items():
        points = " ".join(f"{x(g):.1f},{y(p):.1f}" for g, p in zip(gpus, ps, strict=True))
        colour = colours[preset]
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out.append(f'<text x="{width - 104}" y="{y(ps[-1]) + 4:.1f}" fill="{colour}">{preset}</text>')
    out.append("</svg>")
    (ROOT / "docs/slowdown-at-scale.svg").write_text("\n".join(out) + "\n")


def main():
    """Table and plot."""
    prism = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "target/release/prism")
    print("# Probability of a slow-down at scale\n")
    print("How likely a step takes more than x % longer than it would if every GPU were alike and nothing")
    print("varied: GPT-3 with six layers a GPU group, tensor parallel 8, up to 16 stages, 32 microbatches a")
    print("replica, the replicas growing to 131,072 GPUs. Over the clusters one might be given and the steps")
    print("on them.")
    print("`scripts/slowdown_at_scale.py` makes this page from `prism predict`.\n")
    print("![Probability of a step more than 3 % slower than without noise](slowdown-at-scale.svg)\n")
    curves = {}
    for preset in PRESETS:
        print(f"## Variability `{preset}`\n")
        print("| GPUs | mean | " + " | ".join(f"> {100 * a:g} %" for a in ABOVE) + " | p95 |")
        print("|---:|" + "---:|" * (len(ABOVE) + 2))
        curves[preset] = []
        for gpus, stages, replicas in SIZES:
            p = predict(prism, preset, gpus, stages, replicas)
            law, quiet = p["over_clusters"], p["noise_free_s"]
            tails = {round(s["above"], 6): s["probability"] for s in law["slowdowns"]}
            p95 = next(q["value_s"] for q in law["quantiles"] if q["p"] == 0.95)
            cells = [f"{gpus:,}", f"+{100 * (law['mean_s'] / quiet - 1):.1f} %"]
            cells += [percent(tails[a]) for a in ABOVE]
            cells.append("-" if p95 is None else f"+{100 * (p95 / quiet - 1):.1f} %")
            print("| " + " | ".join(cells) + " |")
            curves[preset].append(tails[0.03])
        print()
    plot(curves)


if __name__ == "__main__":
    main()
