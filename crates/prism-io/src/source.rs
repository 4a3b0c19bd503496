//! Bytes of a file, whatever it is wrapped in.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::error::{Foreign, IoError};
use crate::op_table::Source;
use crate::options::Limits;

/// What the content of a file is, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Parquet,
    Csv,
}

/// SHA-256 in lower-case hexadecimal.
///
/// ```
/// assert!(prism_io::sha256_hex(b"").starts_with("e3b0c44298fc1c14"));
/// ```
pub fn sha256_hex(bytes: &[u8]) -> String {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let digest = Sha256::digest(bytes);
    digest
        .iter()
        .flat_map(|b| [HEX[usize::from(b >> 4)], HEX[usize::from(b & 15)]])
        .map(char::from)
        .collect()
}

/// Reads a whole file, or standard input for `-`.
///
/// # Errors
/// [`IoError::Read`], [`IoError::TooLarge`].
pub(crate) fn slurp(path: &Path, limits: Limits) -> Result<Vec<u8>, IoError> {
    let file = name(path);
    let failed = |source| IoError::Read { file: file.clone(), source };
    let mut bytes = Vec::new();
    let read = if is_stdio(path) {
        bounded(&mut io::stdin().lock(), &mut bytes, limits.bytes)
    } else {
        let mut opened = File::open(path).map_err(failed)?;
        let meta = opened.metadata().map_err(failed)?;
        if meta.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        bytes.reserve(meta.len().min(limits.bytes) as usize);
        bounded(&mut opened, &mut bytes, limits.bytes)
    };
    match read {
        Ok(true) => Ok(bytes),
        Ok(false) => Err(IoError::TooLarge { file, limit: limits.bytes, unit: "bytes" }),
        Err(source) => Err(failed(source)),
    }
}

/// Reads to the end, or `false` if there is more than `limit`.
fn bounded(reader: &mut dyn Read, into: &mut Vec<u8>, limit: u64) -> io::Result<bool> {
    let read = reader.take(limit.saturating_add(1)).read_to_end(into)?;
    Ok(read as u64 <= limit)
}

/// A name for messages and provenance.
pub(crate) fn name(path: &Path) -> String {
    path.display().to_string()
}

/// Whether a path means standard input or output.
pub(crate) fn is_stdio(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The provenance entry of a file.
pub(crate) fn source(name: &str, bytes: &[u8]) -> Source {
    Source { name: name.to_owned(), sha256: sha256_hex(bytes), bytes: bytes.len() as u64 }
}

/// Unpacks gzip and tells Parquet from CSV.
///
/// # Errors
/// [`IoError::Empty`], [`IoError::Foreign`], [`IoError::Gzip`], [`IoError::TooLarge`].
pub(crate) fn unwrap(
    file: &str,
    bytes: Vec<u8>,
    limits: Limits,
) -> Result<(Content, Vec<u8>), IoError> {
    let bytes = if bytes.starts_with(GZIP) { gunzip(file, &bytes, limits)? } else { bytes };
    let content = kind(file, &bytes)?;
    match bytes.iter().find(|b| !b.is_ascii_whitespace()) {
        Some(b'{' | b'[') => Err(IoError::Foreign { file: file.to_owned(), what: Foreign::Json }),
        _ => Ok((content, bytes)),
    }
}

/// Unpacks gzip and tells Parquet from text, which may begin like JSON: log lines begin with brackets.
///
/// # Errors
/// As [`unwrap`], but for JSON.
pub(crate) fn unpack<'a>(
    file: &str,
    bytes: &'a [u8],
    limits: Limits,
) -> Result<(Content, Cow<'a, [u8]>), IoError> {
    let bytes = if bytes.starts_with(GZIP) {
        Cow::Owned(gunzip(file, bytes, limits)?)
    } else {
        Cow::Borrowed(bytes)
    };
    Ok((kind(file, &bytes)?, bytes))
}

/// Tells Parquet from text, by the first bytes of what is unpacked.
///
/// # Errors
/// [`IoError::Empty`], [`IoError::Foreign`] but for JSON.
pub(crate) fn kind(file: &str, bytes: &[u8]) -> Result<Content, IoError> {
    let foreign = |what| Err(IoError::Foreign { file: file.to_owned(), what });
    match () {
        () if bytes.trim_ascii().is_empty() => {
            Err(IoError::Empty { file: file.to_owned(), what: "no content" })
        }
        () if bytes.starts_with(b"PAR1") => Ok(Content::Parquet),
        () if bytes.starts_with(GZIP) => foreign(Foreign::NestedGzip),
        () if bytes.starts_with(&[0x28, 0xB5, 0x2F, 0xFD]) => foreign(Foreign::Zstd),
        () if bytes.starts_with(b"PK\x03\x04") => foreign(Foreign::Zip),
        () if bytes.starts_with(b"ARROW1") => foreign(Foreign::Arrow),
        () => Ok(Content::Csv),
    }
}

/// How a gzip file begins.
pub(crate) const GZIP: &[u8] = &[0x1F, 0x8B];

fn gunzip(file: &str, bytes: &[u8], limits: Limits) -> Result<Vec<u8>, IoError> {
    let mut out = Vec::new();
    let mut decoder = flate2::read::MultiGzDecoder::new(bytes);
    match bounded(&mut decoder, &mut out, limits.bytes) {
        Ok(true) => Ok(out),
        Ok(false) => {
            let limit = limits.bytes;
            Err(IoError::TooLarge { file: file.to_owned(), limit, unit: "bytes" })
        }
        Err(source) => Err(IoError::Gzip { file: file.to_owned(), source }),
    }
}
