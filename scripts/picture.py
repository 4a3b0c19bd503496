"""Draws docs/step-time.svg: the predicted distribution of the example, and its recorded steps.

Usage: python3 scripts/picture.py [PRISM]    (default: target/release/prism)
"""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TRACE = "examples/pipeline.parquet"
WIDTH, HEIGHT, LEFT, RIGHT, BOTTOM, TOP = 760, 300, 30, 30, 64, 46


def run(prism: str, *args: str) -> dict:
    out = subprocess.run([prism, *args, "--json"], cwd=ROOT, check=True, capture_output=True)
    return json.loads(out.stdout)


def find(value, key):
    """First value of a key, depth first."""
    if isinstance(value, dict):
        if key in value:
            return value[key]
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            found = find(item, key)
            if found is not None:
                return found
    return None


def main() -> None:
    prism = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "target/release/prism")
    predicted = run(prism, "predict", TRACE, "--samples", "100000")
    histogram = find(predicted, "histogram")
    quantiles = {q["p"]: q["value"] for q in find(predicted, "quantiles")}
    steps = [s["base_s"] for s in find(run(prism, "replay", TRACE), "steps")]
    low, high, counts = histogram["from_s"], histogram["to_s"], histogram["counts"]
    low, high_data = min(low, *steps), max(high, *steps)
    span = high_data - low

    def x(seconds: float) -> float:
        return LEFT + (seconds - low) / span * (WIDTH - LEFT - RIGHT)

    base, top = HEIGHT - BOTTOM, TOP
    bar = (histogram["to_s"] - histogram["from_s"]) / len(counts)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="system-ui, sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="20" font-size="15" fill="#222">Predicted step time of the example job,'
        " and its recorded steps</text>",
    ]
    for i, count in enumerate(counts):
        left = histogram["from_s"] + i * bar
        tall = (base - top) * count / max(counts)
        parts.append(
            f'<rect x="{x(left):.1f}" y="{base - tall:.1f}" width="{x(left + bar) - x(left) - 1:.1f}"'
            f' height="{tall:.1f}" fill="#7aa6d8"/>'
        )
    parts.append(f'<line x1="{LEFT}" y1="{base}" x2="{WIDTH - RIGHT}" y2="{base}" stroke="#444"/>')
    for p, value in quantiles.items():
        if p in (0.05, 0.5, 0.95):
            parts.append(
                f'<line x1="{x(value):.1f}" y1="{top - 6}" x2="{x(value):.1f}" y2="{base}" '
                'stroke="#c2410c" stroke-dasharray="4 3"/>'
                f'<text x="{x(value):.1f}" y="{top - 10}" text-anchor="middle" fill="#c2410c">'
                f"p{100 * p:g} {value:.2f} s</text>"
            )
    for step in steps:
        parts.append(
            f'<line x1="{x(step):.1f}" y1="{base + 6}" x2="{x(step):.1f}" y2="{base + 20}" '
            'stroke="#222"/>'
        )
    parts.append(
        f'<text x="{LEFT}" y="{HEIGHT - 14}" fill="#222">'
        f"{len(steps)} recorded steps (marks), 100,000 predicted ones (bars)</text></svg>"
    )
    out = ROOT / "docs/step-time.svg"
    out.write_text("\n".join(parts) + "\n")
    print(f"wrote {out.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
