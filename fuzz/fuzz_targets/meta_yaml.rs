//! YAML metadata beside a good trace.
#![no_main]

use std::sync::LazyLock;

use prism_fuzz::{check, options};

static TRACE: LazyLock<Vec<u8>> = LazyLock::new(|| prism_fuzz::csv(&prism_fuzz::small()));

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    check(prism_io::read_op_table_bytes("fuzz", &TRACE, Some(("meta", data)), &options(false)));
});
