//! Random variables: counter-based random streams and tabulated quantile functions.

pub mod counter;
pub mod quantile_table;

pub use counter::Key;
pub use quantile_table::QuantileTable;
