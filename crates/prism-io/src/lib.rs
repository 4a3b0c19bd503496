//! Files in, tables out.
//!
//! Every foreign trace format becomes an [`OpTable`]. Readers check what they read and report
//! every violation with file, row and rule. Outputs are written atomically.

mod op_table;

pub use op_table::{JobMeta, NO_GROUP, OpRow, OpTable, OpTableBuilder, Source};
