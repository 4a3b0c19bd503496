//! Files in, tables out.
//!
//! Every foreign trace format becomes an [`OpTable`]. Readers check what they read and report
//! every violation with file, row and rule. Outputs are written atomically.
//!
//! ```
//! use prism_io::{ReadOptions, read_op_table_bytes};
//!
//! let trace = "\
//! step,rank,optype,start_ts,duration
//! 7,0,forward-compute,0,0.19
//! 7,0,backward-compute,0.2,0.4
//! 7,0,optimizer,0.61,-0.02
//! ";
//! let meta = "dp_size: 1\npp_size: 1\ntp_size: 1\nworld_size: 1\n";
//! let read = |trace: &str| {
//!     let meta = Some(("meta-x.yaml", meta.as_bytes()));
//!     read_op_table_bytes("trace-x.csv", trace.as_bytes(), meta, &ReadOptions::default())
//! };
//!
//! let error = read(trace).unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     "trace-x.csv: 1 violation
//!   [not-negative] starts and durations are not negative (1)
//!     line 4: duration is -0.02 s
//!     hint: negative times come from clocks that are not synchronised, or from a start that is \
//!      not the step's earliest"
//! );
//!
//! let loaded = read(&trace.replace("-0.02", "0.02"))?;
//! assert_eq!(loaded.table.len(), 3);
//! assert_eq!(loaded.table.steps(), [7]);
//! assert_eq!(
//!     loaded.warnings,
//!     ["trace-x.csv: derived the missing columns `dp_rank`, `stage`, `seq_id`, `mc`, `gmc`, `mb_id`"]
//! );
//! # Ok::<(), prism_io::IoError>(())
//! ```
//!
//! | what | how |
//! |---|---|
//! | read a trace | [`read_op_table`], [`read_op_table_bytes`], [`ReadOptions`], [`meta_candidates`] |
//! | read step times | [`read_step_logs`], [`read_step_logs_bytes`], [`StepLogOptions`]; of one run [`read_step_log`], [`read_step_log_bytes`]; [`looks_like_step_log`] |
//! | follow a growing log | [`StepLogTail`], [`LogEvent`] |
//! | write a trace | [`write_op_table`], [`write_op_table_straggler`], [`write_op_table_csv`], [`write_meta_yaml`] |
//! | write anything else | [`write_atomic`], [`write_samples`] |
//! | read speeds of GPUs | [`read_speeds`], [`SpeedOptions`] |
//! | build a table | [`OpTableBuilder`] |
//! | what is wrong | [`IoError`], [`Violations`], [`Rule`] |

mod assemble;
mod atomic;
mod bench_table;
mod check;
mod csv_read;
mod error;
mod meta;
mod native;
mod op_table;
mod op_table_write;
mod options;
mod page_guard;
mod parquet_read;
mod parquet_write;
mod raw;
mod read;
mod samples;
mod source;
mod speeds;
mod step_log;
mod thrift;
mod violation;

pub use atomic::{write_atomic, write_atomic_gz};
pub use bench_table::{BenchTable, read_bench_table, read_bench_table_bytes};
pub use check::DroppedStep;
pub use error::{ColumnProblem, Foreign, IoError};
pub use meta::meta_candidates;
pub use native::{META_KEY, SCHEMA, SCHEMA_KEY};
pub use op_table::{JobMeta, NO_GROUP, OpRow, OpTable, OpTableBuilder, Source};
pub use op_table_write::{
    write_meta_yaml, write_op_table, write_op_table_csv, write_op_table_straggler,
};
pub use options::{Limits, ReadOptions};
pub use read::{Loaded, read_op_table, read_op_table_bytes};
pub use samples::write_samples;
pub use source::sha256_hex;
pub use speeds::{MeasuredGpu, SpeedOptions, SpeedTable, read_speeds, read_speeds_bytes};
pub use step_log::{
    LogEvent, LogFormat, Pause, PauseKind, StepLog, StepLogOptions, StepLogTail,
    looks_like_step_log, read_step_log, read_step_log_bytes, read_step_logs, read_step_logs_bytes,
};
pub use violation::{Breaches, Place, Rule, SHOWN_PER_RULE, Violation, Violations};
