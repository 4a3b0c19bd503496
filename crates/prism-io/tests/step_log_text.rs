//! Logs of step times that trainers print. All of them are invented.

use prism_io::{
    IoError, Limits, LogEvent, LogFormat, Pause, PauseKind, Rule, StepLog, StepLogOptions,
    StepLogTail, looks_like_step_log, read_step_log_bytes, read_step_logs_bytes,
};

fn read(text: &str) -> Vec<StepLog> {
    read_with(text, &StepLogOptions::default()).unwrap()
}

fn read_with(text: &str, options: &StepLogOptions) -> Result<Vec<StepLog>, IoError> {
    read_step_logs_bytes("run.log", text.as_bytes(), options)
}

/// Rules broken, and the first place of each.
fn broken(text: &str) -> Vec<(Rule, String)> {
    match read_with(text, &StepLogOptions::default()) {
        Err(IoError::Invalid(v)) => {
            v.by_rule.iter().map(|(r, b)| (*r, b.shown[0].place.to_string())).collect()
        }
        other => panic!("{other:?}"),
    }
}

fn pause(kind: PauseKind, after: usize, duration_s: Option<f64>) -> Pause {
    Pause { kind, after, duration_s }
}

const MEGATRON: &str = "\
using world size: 8, data-parallel size: 1
> setting random seeds to 1234 ...
time (ms) | load-checkpoint: 0.23
 iteration       10/     100 | consumed samples:   80 | elapsed time per iteration (ms): 500.0 | learning rate: 1.0E-4 |
time (ms) | forward-compute: 28.1 | optimizer: 3.0
 iteration       20/     100 | consumed samples:  160 | elapsed time per iteration (ms): 250.0 | learning rate: 1.0E-4 |
-----------------------------------------------------------------
 validation loss at iteration 20 | lm loss value: 1.0E+01 | lm loss PPL: 2.2E+04 |
-----------------------------------------------------------------
saving checkpoint at iteration      20 to /x in torch_dist format
  successfully saved checkpoint at iteration      20 to /x
time (ms) | save-checkpoint: 1500.00
 iteration       30/     100 | consumed samples:  240 | elapsed time per iteration (ms): 125.0 | learning rate: 1.0E-4 |
";

#[test]
fn megatron_times_are_means_over_the_interval() {
    let log = read(MEGATRON).remove(0);
    assert_eq!(log.format, LogFormat::Megatron);
    assert_eq!((log.step, log.step_s), (vec![10, 20, 30], vec![0.5, 0.25, 0.125]));
    assert_eq!((log.averaged_over, log.run, log.wall_s), (10, None, vec![]));
    assert_eq!(
        log.pauses,
        [pause(PauseKind::Evaluation, 2, None), pause(PauseKind::Checkpoint, 2, Some(1.5))]
    );
    assert!(looks_like_step_log(MEGATRON.as_bytes(), Limits::default()));
    assert_eq!(
        read_step_log_bytes("x", MEGATRON.as_bytes(), Limits::default()).unwrap().step.len(),
        3
    );
}

#[test]
fn megatron_lines_have_prefixes() {
    let text = "\
[default7]: [2024-01-02 23:59:58] iteration        1/     100 | elapsed time per iteration (ms): 900.0 |
[default0]:(min, max) time across ranks (ms):
    evaluate .......................................: (2000.00, 2500.00)
    save-checkpoint ................................: (1000.00, 1250.00)
[default7]: [2024-01-03 00:00:04] iteration        2/     100 | elapsed time per iteration (ms): 800.0 |
[default7]: [2024-01-03 00:00:05] iteration        3/     100 | elapsed time per iteration (ms): 800.0 |
";
    let log = read(text).remove(0);
    assert_eq!((log.step, log.averaged_over), (vec![1, 2, 3], 1));
    assert!(log.wall_s[0].is_nan());
    // Six seconds by the clock, of which the pauses took 3.75.
    assert_eq!(log.wall_s[1..], [2.25, 1.0]);
    assert_eq!(
        log.pauses,
        [pause(PauseKind::Evaluation, 1, Some(2.5)), pause(PauseKind::Checkpoint, 1, Some(1.25))]
    );
}

fn iteration(n: u32, ms: &str) -> String {
    format!(" iteration {n:8}/     100 | elapsed time per iteration (ms): {ms} | lm loss: 1 |\n")
}

#[test]
fn a_restart_that_repeats_steps_is_a_run_of_its_own() {
    let start = "using world size: 8\nsuccessfully loaded checkpoint from /x at iteration 2\n";
    let text = iteration(1, "500.0")
        + &iteration(2, "250.0")
        + &iteration(3, "250.0")
        + start
        + &iteration(3, "125.0")
        + &iteration(4, "125.0");
    let logs = read(&text);
    assert_eq!(logs.len(), 2);
    assert_eq!(
        (logs[0].run.as_deref(), logs[0].step.as_slice()),
        (Some("start 1"), &[1, 2, 3][..])
    );
    assert_eq!((logs[1].run.as_deref(), logs[1].step.as_slice()), (Some("start 2"), &[3, 4][..]));
    assert_eq!(logs[0].pauses, []);
    assert_eq!(logs[1].pauses, [pause(PauseKind::Restart, 0, None)]);
    let error = read_step_log_bytes("x", text.as_bytes(), Limits::default()).unwrap_err();
    assert!(error.to_string().contains("\n  start 2: 2 steps"), "{error}");

    // Steps that go on ascending are the same run.
    let text = iteration(1, "500.0") + start + &iteration(3, "125.0");
    let log = read(&text).remove(0);
    assert_eq!((log.step, log.run), (vec![1, 3], None));
    assert_eq!(log.pauses, [pause(PauseKind::Restart, 1, None)]);
}

#[test]
fn megatron_lines_that_are_wrong_have_places() {
    let text = iteration(1, "nan")
        + &iteration(2, "-1.0")
        + &iteration(3, "0.0")
        + &iteration(3, "1.0")
        + &iteration(2, "1.0")
        + &iteration(4, "1.0x")
        + " iteration 5/ 9 | elapsed time per iteration (ms):  |\n"
        + " elapsed time per iteration (ms): 1.0 |\n";
    let want = [
        (Rule::Number, "line 6".to_owned()),
        (Rule::Finite, "line 1".to_owned()),
        (Rule::Positive, "line 2".to_owned()),
        (Rule::StepsAscend, "line 4".to_owned()),
        (Rule::LogLine, "line 7".to_owned()),
    ];
    assert_eq!(broken(&text), want);
    // The same line twice counts once.
    let twice = iteration(1, "500.0") + &iteration(1, "500.0") + &iteration(2, "500.0");
    assert_eq!(read(&twice)[0].step, [1, 2]);
}

#[test]
fn a_line_that_was_cut_short_is_left_out() {
    let whole = iteration(1, "500.0") + &iteration(2, "250.0");
    let last = iteration(3, "128.5");
    let shown = last.find("128.5").unwrap() + "128.5".len();
    for cut in 0..last.len() {
        let log = read(&(whole.clone() + &last[..cut])).remove(0);
        // The time is known to have ended by what follows it.
        let want: &[f64] = if cut > shown { &[0.5, 0.25, 0.1285] } else { &[0.5, 0.25] };
        assert_eq!(log.step_s, want, "{cut}");
    }
}

fn mllog(time_ms: u64, key: &str, value: &str, step: &str) -> String {
    format!(
        ":::MLLOG {{\"namespace\": \"\", \"time_ms\": {time_ms}, \"event_type\": \"X\", \"key\": \
         \"{key}\", \"value\": {value}, \"metadata\": {{\"lineno\": 1{step}}}}}\n"
    )
}

fn stats(time_ms: u64, seconds: f64, samples: f64) -> String {
    let value = format!("{{\"train_step_time\": {seconds}, \"reduced_train_loss\": 7.5}}");
    mllog(time_ms, "tracked_stats", &value, &format!(", \"step\": {samples:?}"))
}

fn mllog_run() -> String {
    mllog(500, "submission_platform", "\"8xGPU\"", "")
        + &mllog(1000, "run_start", "null", "")
        + &mllog(1000, "block_start", "null", "")
        + &stats(1500, 0.5, 896.0)
        + &stats(1501, 0.5, 896.0)
        + "Epoch 0: 1% | 1/100 [train_step_timing in s=0.5]\n"
        + &stats(2500, 0.75, 1792.0)
        // The block's mean is no step.
        + &stats(2500, 0.625, 0.0).replace("reduced_train_loss", "throughput")
        + &mllog(2500, "block_stop", "null", "")
        + &mllog(2500, "eval_start", "null", "")
        + &mllog(4500, "tracked_stats", "{\"validation_step_time\": 1.0}", ", \"step\": 1792.0")
        + &mllog(4750, "eval_stop", "null", "")
        + &mllog(5000, "block_start", "null", "")
        + "3: "
        + &stats(5500, 0.25, 2688.0)
        + &mllog(5500, "block_start", "null", "")
        + &stats(6000, 0.25, 3584.0)
        + &mllog(6000, "eval_start", "null", "")
        + &mllog(6500, "eval_stop", "null", "")
        + &mllog(6500, "run_stop", "null", "")
        + &mllog(6600, "tracked_stats", "{\"train_epoch_timing\": 9.0}", "")
        + &stats(6700, 0.25, 4480.0)
}

#[test]
fn mllog_steps_count_once() {
    let log = read(&mllog_run()).remove(0);
    assert_eq!((log.format, log.system.as_deref()), (LogFormat::Mllog, Some("8xGPU")));
    assert_eq!(log.step, [0, 1, 2, 3]);
    assert_eq!(log.step_s, [0.5, 0.75, 0.25, 0.25]);
    assert_eq!(log.wall_s, [0.5, 1.0, 0.5, 0.5]);
    assert_eq!(
        log.pauses,
        [
            pause(PauseKind::Evaluation, 2, Some(2.25)),
            pause(PauseKind::Block, 3, None),
            pause(PauseKind::Evaluation, 4, Some(0.5)),
        ]
    );
    let logs = read(&(mllog_run() + &mllog_run()));
    assert_eq!(logs.len(), 2);
    assert_eq!(logs[0].step_s, logs[1].step_s);
    assert_eq!((logs[1].wall_s[0], logs[1].run.as_deref()), (0.5, Some("start 2")));
}

#[test]
fn mllog_lines_that_are_wrong_have_places() {
    let text = stats(1, 0.5, 1.0)
        + &stats(2, -0.5, 2.0)
        + &mllog(3, "tracked_stats", "{\"train_step_timing\": null}", "")
        + ":::MLLOG {\"key\": \"tracked_stats\", \"value\": {\"train_step_time\":::MLLOG {}\n";
    let want = [
        (Rule::Number, "line 3".to_owned()),
        (Rule::Positive, "line 2".to_owned()),
        (Rule::LogLine, "line 4".to_owned()),
    ];
    assert_eq!(broken(&text), want);
    let error = read_with(&mllog(1, "run_start", "null", ""), &StepLogOptions::default());
    let error = error.unwrap_err();
    assert!(matches!(error, IoError::NoSteps { format: LogFormat::Mllog, .. }), "{error}");
    assert!(error.hint().is_some());
}

#[test]
fn the_format_can_be_given() {
    let options = StepLogOptions::default().with_format(LogFormat::Nemo);
    assert_eq!(read_with(&mllog_run(), &options).unwrap()[0].step_s, [0.5]);
    let options = StepLogOptions::default().with_format(LogFormat::Csv);
    let error = read_with(MEGATRON, &options).unwrap_err();
    assert!(matches!(error, IoError::StepLogColumns { .. }), "{error}");
}

const NEMO: &str = "\
GPU available: True (cuda), used: True
Sanity checking Validation: iteration 1/2
Training epoch 0, iteration 0/99 | lr: 3e-05 | consumed_samples: 32 | global_batch_size: 32 | global_step: 0 | reduced_train_loss: 11.0 | train_step_timing in s: 2.5
Training epoch 0, iteration 9/99 | lr: 3e-05 | consumed_samples: 320 | global_batch_size: 32 | global_step: 9 | reduced_train_loss: 11.0 | train_step_timing in s: 0.5 | val_loss: 4.1
Validation: iteration 1/2
Validation: iteration 2/2
[NeMo I 2025-01-02 03:04:05 nemo_logging:393] Epoch 0, global step 10: 'val_loss' reached 4.1, saving model to '/x' as top 3
[NeMo I 2025-01-02 03:04:09 nemo_logging:393] Global Checkpoint Save : Rank: 0 : Iteration: 9 : Start time: 1735787045.125s : Save duration: 4.250s
Training epoch 0, iteration 19/99 | lr: 3e-05 | global_step: 19 | train_step_timing in s: 0.25 | val_loss: 4.0
";

#[test]
fn nemo_2_prints_lines() {
    let log = read(NEMO).remove(0);
    assert_eq!(log.format, LogFormat::Nemo);
    // Each time is that of its step, so nothing is averaged.
    assert_eq!((log.step, log.averaged_over), (vec![0, 9, 19], 1));
    assert_eq!(log.step_s, [2.5, 0.5, 0.25]);
    assert_eq!(
        log.pauses,
        [pause(PauseKind::Evaluation, 2, None), pause(PauseKind::Checkpoint, 2, Some(4.25))]
    );
}

/// One drawing of a progress bar.
fn bar(count: u32, global: &str, seconds: &str) -> String {
    format!(
        "\rEpoch 0: :   1%|\u{258e}         | {count}/30000 [01:42<55:37, v_num=0-56, \
         reduced_train_loss=9.1, global_step={global}, consumed_samples=6.3e+5, \
         train_step_timing in s={seconds}]"
    )
}

#[test]
fn nemo_1_draws_bars() {
    let text = "Epoch 0: :   0%|          | 0/30000 [00:00<?]".to_owned()
        + &bar(1, "0.000", "9.5")
        // Drawn with the values of the step before, then with its own.
        + &bar(2, "0.000", "9.5")
        + &bar(2, "1.000", "0.5")
        + "\rValidation: |          | 0/? [00:00<?]\rValidation DataLoader 0:  50%|"
        + &bar(2, "1.000", "0.5")
        + &bar(3, "2.000", "0.25")
        // From some size on, `global_step` is rounded.
        + &bar(10001, "1e+4", "0.25")
        + &bar(10002, "1e+4", "0.25")
        + &bar(10002, "1e+4", "0.5")
        + "\n";
    let log = read(&text).remove(0);
    assert_eq!(log.step, [0, 1, 2, 10_000, 10_001]);
    assert_eq!(log.step_s, [9.5, 0.5, 0.25, 0.25, 0.5]);
    assert_eq!(log.pauses, [pause(PauseKind::Evaluation, 2, None)]);
    // Without an end of line, the last update counts if its time is whole.
    assert_eq!(read(&text[..text.len() - 1])[0].step.len(), 5);
    assert_eq!(read(&text[..text.len() - 3])[0].step_s[4], 0.25);
    // All updates are on the first line.
    assert_eq!(
        broken(&(text + &bar(10003, "1e+4", "-1"))),
        [(Rule::Positive, "line 2".to_owned())]
    );
}

fn titan(at: &str, rest: &str) -> String {
    format!("[rank0]:\u{1b}[36m[titan] 2025-01-02 {at} - root - INFO - {rest}\u{1b}[0m\n")
}

fn titan_step(at: &str, step: u32, tps: &str) -> String {
    let rest = format!(
        "\u{1b}[31mstep: {step:2}  \u{1b}[32mloss:  8.0000  \u{1b}[35mgrad_norm:  1.2  \
         \u{1b}[33mmemory: 40.00GiB(42.28%)  \u{1b}[34mtps: {tps}  tflops: 9.0  mfu: 1.0%"
    );
    titan(at, &rest)
}

fn titan_run() -> String {
    titan("23:59:50,000", "Training starts at step 1")
        + &titan_step("23:59:54,000", 1, "1,024")
        + &titan_step("23:59:55,000", 1, "1,023").replace("[rank0]", "[rank1]")
        + &titan_step("23:59:58,500", 10, "4,096")
        + &titan("23:59:59,500", "validate step: 10  loss:  7.0  memory: 9GiB  tps: 9,999")
        + &titan("23:59:59,500", "Saving the checkpoint (or staging if async is enabled).")
        + &titan(
            "23:59:59,750",
            "Finished saving the checkpoint (or staging if async is enabled)in 0.25 seconds.",
        )
        + &titan_step("23:59:59,999", 20, "8,192")
}

#[test]
fn torchtitan_times_by_tokens() {
    let options = StepLogOptions::default().with_tokens_per_gpu_step(2048.0);
    let log = read_with(&titan_run(), &options).unwrap().remove(0);
    assert_eq!(log.format, LogFormat::Torchtitan);
    assert_eq!((log.step, log.step_s), (vec![1, 10, 20], vec![2.0, 0.5, 0.25]));
    assert_eq!(
        log.pauses,
        [pause(PauseKind::Evaluation, 2, Some(1.0)), pause(PauseKind::Checkpoint, 2, Some(0.25))]
    );
    // One step, nine, ten: each as frequent as the others.
    assert_eq!(log.averaged_over, 1);
    assert_eq!(log.wall_s[..2], [4.0, 0.5]);
}

#[test]
fn torchtitan_times_by_clock() {
    let log = read(&titan_run()).remove(0);
    assert_eq!(log.step, [1, 10, 20]);
    assert_eq!(log.step_s[..2], [4.0, 0.5]);
    // 1.499 s less the validation and the checkpoint, in ten steps.
    assert!((log.step_s[2] - 0.0249).abs() < 1e-6, "{:?}", log.step_s);
    // Without the start, the first line only says from where on the next counts.
    let text = titan_run();
    let log = read(&text[text.find('\n').unwrap() + 1..]).remove(0);
    assert_eq!(log.step, [10, 20]);

    let bare = [1, 2, 3].map(|n| format!("step: {n}  loss: 1.0  tps: 1,000\n")).concat();
    let error = read_with(&bare, &StepLogOptions::default()).unwrap_err();
    assert!(error.to_string().contains("line 1: a step has neither"), "{error}");
    assert!(error.to_string().contains("`tokens_per_gpu_step`"), "{error}");
    let options = StepLogOptions::default().with_tokens_per_gpu_step(250.0);
    assert_eq!(read_with(&bare, &options).unwrap()[0].step_s, [0.25; 3]);
}

#[test]
fn torchtitan_lines_that_are_wrong_have_places() {
    let clock = titan_step("00:00:01,000", 5, "1")
        + &titan_step("00:00:02,000", 6, "1")
        + &titan_step("00:00:02,000", 7, "1")
        + &titan_step("00:00:03,000", 4, "1");
    let want = [(Rule::Positive, "line 3".to_owned()), (Rule::StepsAscend, "line 4".to_owned())];
    assert_eq!(broken(&clock), want);
    let again = clock
        + &titan("00:01:00,000", "Training starts at step 4")
        + &titan_step("00:01:01,500", 4, "1");
    assert_eq!(broken(&again), want);
    let first = titan_step("00:00:01,000", 5, "1") + &titan_step("00:00:02,000", 6, "1");
    let logs = read(
        &(first
            + &titan("00:01:00,000", "Training starts at step 4")
            + &titan_step("00:01:01,500", 4, "1")),
    );
    assert_eq!((logs.len(), logs[1].step_s.as_slice()), (2, &[1.5][..]));
    let one = read_with(&titan_step("00:00:01,000", 5, "1"), &StepLogOptions::default());
    assert!(matches!(one, Err(IoError::NoSteps { format: LogFormat::Torchtitan, .. })), "{one:?}");
}

/// What the whole-file reader says, as the tail would say it: each run's pauses and steps in order.
fn as_events(logs: &[StepLog]) -> Vec<Vec<LogEvent>> {
    logs.iter()
        .map(|log| {
            let mut out = Vec::new();
            let mut pauses = log.pauses.iter().peekable();
            for at in 0..=log.step.len() {
                while let Some(p) = pauses.next_if(|p| p.after == at) {
                    out.push(LogEvent::Pause { kind: p.kind, duration_s: p.duration_s });
                }
                if at < log.step.len() {
                    let (step, step_s) = (log.step[at], log.step_s[at]);
                    out.push(LogEvent::Step { step, step_s, averaged_over: 0 });
                }
            }
            out
        })
        .collect()
}

/// The tail's events by run, `averaged_over` left out: a log has one for all its steps.
fn tailed(text: &str, options: &StepLogOptions, chunk: usize) -> Vec<Vec<LogEvent>> {
    let mut tail = StepLogTail::new("run.log", options);
    let mut events = Vec::new();
    for bytes in text.as_bytes().chunks(chunk) {
        tail.push(bytes).unwrap();
        events.extend(tail.drain());
    }
    tail.finish().unwrap();
    events.extend(tail.drain());
    let mut runs = vec![Vec::new()];
    for event in events {
        match event {
            LogEvent::Run { .. } if runs.last().is_some_and(Vec::is_empty) => {}
            LogEvent::Run { .. } => runs.push(Vec::new()),
            LogEvent::Step { step, step_s, .. } => {
                let last = runs.len() - 1;
                runs[last].push(LogEvent::Step { step, step_s, averaged_over: 0 });
            }
            other => {
                let last = runs.len() - 1;
                runs[last].push(other);
            }
        }
    }
    runs
}

#[test]
fn a_tail_says_what_the_whole_file_does() {
    let restarted = iteration(2, "500.0") + "using world size: 8\n" + &iteration(1, "250.0");
    let table = "step,kind,step_s\r\n1,train,0.5\r\n1,val,\r\n2,train,\"0.25\"\r\n";
    let plain = StepLogOptions::default();
    let tokens = StepLogOptions::default().with_tokens_per_gpu_step(2048.0);
    let bars = [1, 2, 3, 4].map(|n| bar(n, &format!("{}.000", n - 1), "0.5")).concat();
    let twice = mllog_run() + &mllog_run();
    for (text, options) in [
        (MEGATRON, &plain),
        (&restarted, &plain),
        (table, &plain),
        (NEMO, &plain),
        (&bars, &plain),
        (&twice, &plain),
        (&titan_run(), &plain),
        (&titan_run(), &tokens),
    ] {
        let want = as_events(&read_with(text, options).unwrap());
        assert!(!want[0].is_empty());
        for chunk in 1..=text.len() {
            assert_eq!(tailed(text, options, chunk), want, "{text}\nin chunks of {chunk}");
        }
    }
}

#[test]
fn a_tail_goes_on_after_a_bad_line() {
    let mut tail = StepLogTail::new("run.log", &StepLogOptions::default());
    assert_eq!(tail.format(), None);
    tail.push(iteration(10, "500.0").as_bytes()).unwrap();
    assert_eq!(tail.format(), Some(LogFormat::Megatron));
    // Until the second line nobody knows of how many steps the first is the mean.
    assert_eq!(tail.drain(), []);
    let error = tail.push(iteration(20, "nan").as_bytes()).unwrap_err();
    assert!(error.to_string().contains("line 2"), "{error}");
    tail.push(iteration(30, "250.0").as_bytes()).unwrap();
    let step = |step, step_s| LogEvent::Step { step, step_s, averaged_over: 10 };
    assert_eq!(tail.drain(), [step(10, 0.5), step(30, 0.25)]);
    tail.finish().unwrap();
    assert_eq!(tail.drain(), []);

    let mut packed = StepLogTail::new("run.log.gz", &StepLogOptions::default());
    packed.push(&[0x1F]).unwrap();
    assert!(matches!(packed.push(&[0x8B]), Err(IoError::NotAStepLog { .. })));
    let mut nothing = StepLogTail::new("x", &StepLogOptions::default());
    nothing.push(b"no log\n").unwrap();
    assert!(matches!(nothing.finish(), Err(IoError::NotAStepLog { .. })));
}

#[test]
fn every_format_looks_like_a_log() {
    for text in [MEGATRON, NEMO, &mllog_run(), &titan_run()] {
        assert!(looks_like_step_log(text.as_bytes(), Limits::default()));
        assert!(looks_like_step_log(
            ("[a preamble]\n".to_owned() + text).as_bytes(),
            Limits::default()
        ));
    }
    assert!(!looks_like_step_log(b"[model]\nsteps = 5\n", Limits::default()));
    assert!(!looks_like_step_log(b"PAR1 train_step_timing in s", Limits::default()));
}
