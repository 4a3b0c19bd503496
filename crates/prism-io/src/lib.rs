//! Files in, tables out.
//!
//! Every foreign trace format becomes an [`OpTable`]. Readers check what they read and report
//! every violation with file, row and rule. Outputs are written atomically.

mod assemble;
mod atomic;
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
mod thrift;
mod violation;

pub use atomic::write_atomic;
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
pub use violation::{Breaches, Place, Rule, SHOWN_PER_RULE, Violation, Violations};
