#!/bin/sh
# Fuzzes every reader for a bounded time: fuzz/run.sh [SECONDS per target, default 20] [TARGET...]
#
# Needs stable Rust and a C++ compiler (libFuzzer is C++), which is installed with apt-get where it
# is missing and that is possible. Exits with 1 if a target crashed; the input is then in
# fuzz/artifacts/TARGET, and `fuzz/run.sh 0 TARGET` runs it again.
set -eu

seconds=${1:-20}
[ $# -gt 0 ] && shift
targets=${*:-straggler_parquet straggler_csv meta_yaml native_parquet step_log speeds job_file}

cd "$(dirname "$0")"

if ! command -v c++ >/dev/null 2>&1; then
    echo "fuzz: no C++ compiler, installing g++" >&2
    apt-get update -qq && apt-get install -y -qq g++ >/dev/null
fi

# What cargo-fuzz passes, without a sanitizer: the readers have no unsafe code, and coverage alone
# needs no nightly compiler. With --target, build scripts are not instrumented.
host=$(rustc -vV | sed -n 's/^host: //p')
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module \
-Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
-Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"
target_dir=${CARGO_TARGET_DIR:-target}/fuzz
CARGO_TARGET_DIR=$target_dir cargo build --locked --release --target "$host" --quiet
bin=$target_dir/$host/release

"$bin/seeds" corpus

failed=
for target in $targets; do
    mkdir -p "corpus/$target" "artifacts/$target"
    # Inputs that crashed before come first.
    for input in artifacts/"$target"/*; do
        [ -f "$input" ] || continue
        "$bin/$target" "$input" >/dev/null 2>&1 || { echo "fuzz: $target: $input still fails" >&2; failed=1; }
    done
    [ "$seconds" -gt 0 ] || continue
    log=artifacts/$target.log
    if "$bin/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=16384 \
        -artifact_prefix="artifacts/$target/" "corpus/$target" >"$log" 2>&1; then
        tail -n 1 "$log" | sed "s/^/fuzz: $target: /"
    else
        tail -n 40 "$log" >&2
        echo "fuzz: $target failed; the input is in fuzz/artifacts/$target" >&2
        failed=1
    fi
done
[ -z "$failed" ]
