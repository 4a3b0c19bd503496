//! Parquet with the straggler format's columns.
#![no_main]

use prism_fuzz::{META_YAML, check, options};

libfuzzer_sys::fuzz_target!(init: prism_fuzz::let_the_decoder_panic(), |data: &[u8]| {
    let meta = Some(("meta", META_YAML));
    check(prism_io::read_op_table_bytes("fuzz", data, meta, &options(true)));
});
