//! Job files: what is read breaks no rule, costs finite times, and is written back as it is.
#![no_main]

use prism_job::cost::costs;
use prism_job::{ReadOptions, parse_job, to_toml};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match parse_job(text, &ReadOptions::default()) {
        Ok(read) => {
            assert!(read.job.check().is_empty());
            let again = parse_job(&to_toml(&read.job), &ReadOptions::default());
            assert!(again.is_ok_and(|again| again.job == read.job), "it is written as it was read");
            if read.job.model.layers <= 1_000 && read.job.plan.chunks() <= 1_000 {
                let costs = costs(&read.job);
                assert!(costs.chunks.iter().all(|c| c.forward.seconds() >= 0.0));
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
