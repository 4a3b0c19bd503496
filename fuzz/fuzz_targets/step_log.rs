//! Logs of step times, whole and as they grow.
#![no_main]

use prism_io::{
    IoError, Limits, LogEvent, StepLog, StepLogOptions, StepLogTail, looks_like_step_log,
    read_step_log_bytes, read_step_logs_bytes,
};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    // The length chooses the options and the size of chunks, so that seeds stay whole.
    let choice = data.len() % 256;
    let mut options = StepLogOptions::default().with_cumulative(choice & 1 == 1);
    if choice & 2 == 2 {
        options = options.with_tokens_per_gpu_step(1024.0);
    }
    let logs = read_step_logs_bytes("fuzz", data, &options);
    if let Err(error) = &logs {
        assert!(!error.to_string().is_empty());
    }
    for log in logs.iter().flatten() {
        keeps_its_promises(log);
    }
    if logs.is_ok() {
        assert!(looks_like_step_log(data, Limits::default()), "a log that is read looks like one");
    }
    if let Ok(log) = read_step_log_bytes("fuzz", data, Limits::default()) {
        keeps_its_promises(&log);
    }
    tail_agrees(data, &options, (choice >> 2) + 1, &logs);
});

fn keeps_its_promises(log: &StepLog) {
    assert!(!log.step.is_empty() && log.averaged_over > 0);
    assert_eq!(log.step.len(), log.step_s.len());
    assert!(log.wall_s.is_empty() || log.wall_s.len() == log.step.len());
    assert!(log.step_s.iter().all(|t| t.is_finite() && *t > 0.0));
    assert!(log.step.windows(2).all(|w| w[0] < w[1]));
    assert!(log.pauses.windows(2).all(|w| w[0].after <= w[1].after));
    assert!(log.pauses.iter().all(|p| p.after <= log.step.len()));
}

/// What the tail tells of steps is what the whole file's reader does.
fn tail_agrees(
    data: &[u8],
    options: &StepLogOptions,
    chunk: usize,
    logs: &Result<Vec<StepLog>, IoError>,
) {
    let mut tail = StepLogTail::new("fuzz", options);
    let mut events = Vec::new();
    let mut good = true;
    for bytes in data.chunks(chunk) {
        good &= tail.push(bytes).is_ok();
        events.extend(tail.drain());
    }
    good &= tail.finish().is_ok();
    events.extend(tail.drain());
    // The tail takes nothing packed.
    let Ok(logs) = logs else { return };
    if data.starts_with(&[0x1F, 0x8B]) {
        return;
    }
    assert!(good, "what is read whole is read in pieces");
    let steps = |e: &LogEvent| matches!(e, LogEvent::Step { .. });
    let told = events.iter().filter(|e| steps(e)).count();
    assert_eq!(told, logs.iter().map(|l| l.step.len()).sum::<usize>());
}
