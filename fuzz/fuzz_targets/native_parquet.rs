//! Native Parquet, metadata inside.
#![no_main]

use prism_fuzz::{check, options};

libfuzzer_sys::fuzz_target!(init: prism_fuzz::let_the_decoder_panic(), |data: &[u8]| {
    check(prism_io::read_op_table_bytes("fuzz", data, None, &options(true)));
});
