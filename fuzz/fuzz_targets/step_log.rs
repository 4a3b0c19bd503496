//! Logs of step times.
#![no_main]

use prism_io::{Limits, looks_like_step_log, read_step_log_bytes};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let limits = Limits::default();
    let looks = looks_like_step_log(data, limits);
    match read_step_log_bytes("fuzz", data, limits) {
        Ok(log) => {
            assert!(looks, "a log that is read looks like one");
            assert_eq!(log.step.len(), log.step_s.len());
            assert!(log.step_s.iter().all(|t| t.is_finite() && *t > 0.0));
            assert!(log.step.windows(2).all(|w| w[0] < w[1]));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
