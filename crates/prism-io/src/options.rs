//! How to read.

use std::path::PathBuf;

/// How [`crate::read_op_table`] reads.
///
/// ```
/// use prism_io::ReadOptions;
///
/// let options = ReadOptions::default().with_meta("meta-x.yaml").with_allow_incomplete(true);
/// assert!(options.allow_incomplete);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// Metadata file; without it, the one beside the trace is looked for.
    pub meta: Option<PathBuf>,
    /// Drop steps that lack operations instead of refusing the file.
    pub allow_incomplete: bool,
    /// Upper limits on what is read.
    pub limits: Limits,
}

/// Upper limits on what is read, so that a damaged or hostile file cannot exhaust memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Rows of a table.
    pub rows: u64,
    /// Bytes of a file after decompression.
    pub bytes: u64,
}

impl Default for Limits {
    /// 2^28 rows (about 20 GB as a table) and 64 GiB.
    fn default() -> Self {
        Limits { rows: 1 << 28, bytes: 1 << 36 }
    }
}

impl ReadOptions {
    /// Reads the metadata from this file.
    #[must_use]
    pub fn with_meta(mut self, path: impl Into<PathBuf>) -> Self {
        self.meta = Some(path.into());
        self
    }

    /// Drops steps that lack operations instead of refusing the file.
    #[must_use]
    pub fn with_allow_incomplete(mut self, allow: bool) -> Self {
        self.allow_incomplete = allow;
        self
    }

    /// Limits what is read.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }
}
