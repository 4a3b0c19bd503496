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

# Figures that take minutes: effects against truth, coverage of intervals, errors of comparisons, attribution, placement
figures:
    cargo run --release -q -p prism-engine --example calibrate_truth
    cargo run --release -q -p prism-engine --example coverage
    cargo run --release -q -p prism-decide --example diff_truth
    cargo run --release -q -p prism-decide --example attribution
    cargo run --release -q -p prism-decide --example place_2048

# Fuzz every reader for some seconds each
fuzz seconds="60":
    fuzz/run.sh {{seconds}}
