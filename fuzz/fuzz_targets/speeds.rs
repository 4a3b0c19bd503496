//! Tables of GPU speeds.
#![no_main]

use prism_io::{SpeedOptions, read_speeds_bytes};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    for nodes in [false, true] {
        let options = SpeedOptions { nodes, ..SpeedOptions::default() };
        match read_speeds_bytes("fuzz", data.to_vec(), &options) {
            Ok(table) => {
                assert!(!table.gpus.is_empty());
                let times = || table.gpus.iter().flat_map(|g| &g.times);
                assert!(times().all(|t| t.is_finite() && *t > 0.0));
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
});
