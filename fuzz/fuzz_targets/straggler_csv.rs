//! CSV with the straggler format's columns, plain or in gzip.
#![no_main]

use prism_fuzz::{META_YAML, check, options};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let meta = Some(("meta", META_YAML));
    check(prism_io::read_op_table_bytes("fuzz", data, meta, &options(true)));
    check(prism_io::read_op_table_bytes("fuzz", data, meta, &options(false)));
});
