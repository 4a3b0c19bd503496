# What people do daily. `just` lists these.

default:
    @just --list

# Everything the gate checks
ci:
    .ci/run

# Format
fmt:
    cargo fmt --all

# Lints, as strict as the gate
lint:
    cargo clippy --workspace --all-targets -- -D warnings

# All tests
test:
    cargo test --workspace

# The command itself, optimised
build:
    cargo build --release -p prism-cli

# Predict from the example
example:
    cargo run --release -q -p prism-cli -- predict examples/pipeline.parquet

# Kernel benchmarks, and the comparisons with numpy
bench:
    cargo bench -p prism-engine --bench kernel
    python3 scripts/bench_kernel.py
    python3 scripts/bench_whatif.py
    cargo build --release -q -p prism-cli
    python3 scripts/bench_plan.py

# Figures that take minutes: effects against truth, coverage of intervals, errors of comparisons, attribution, placement, published step times, scale methods against brute force, resized traces, search, watching, speed of simulated runs
figures:
    cargo run --release -q -p prism-engine --example calibrate_truth
    cargo run --release -q -p prism-engine --example coverage
    cargo run --release -q -p prism-decide --example diff_truth
    cargo run --release -q -p prism-decide --example attribution
    cargo run --release -q -p prism-decide --example place_2048
    cargo run --release -q -p prism-engine --example cost_accuracy
    cargo run --release -q -p prism-engine --example scale_methods
    cargo run --release -q -p prism-engine --example resize_ar
    cargo run --release -q -p prism-decide --example search_175b
    cargo run --release -q -p prism-run --example watch_study
    cargo run --release -q -p prism-run --example run_scale
    cargo run --release -q -p prism-run --example run_figures

# How well runs of public logs are predicted from the others of their system
cross-validate:
    cargo run --release -q -p prism-cli -- calibrate-run "${PRISM_DATA:-../shared/data}/mlperf/steps.csv.gz" --cross-validate

# The page on slow-downs at scale, and its plot
slowdown:
    cargo build --release -q -p prism-cli
    python3 scripts/slowdown_at_scale.py > docs/slowdown-at-scale.md

# Fuzz every reader for some seconds each
fuzz seconds="60":
    fuzz/run.sh {{seconds}}
