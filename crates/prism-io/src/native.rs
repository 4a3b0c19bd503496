//! The native Parquet schema, `docs/native-trace-schema.md`.

/// Name and version of the schema, the value of the key [`SCHEMA_KEY`].
pub const SCHEMA: &str = "prism.op-table/1";
/// Key of the file's key-value metadata that holds [`SCHEMA`].
pub const SCHEMA_KEY: &str = "prism.schema";
/// Key of the file's key-value metadata that holds the job's metadata as JSON.
pub const META_KEY: &str = "prism.meta";
