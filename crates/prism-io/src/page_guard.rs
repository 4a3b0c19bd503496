//! Sizes that the pages of a Parquet file claim, checked before a decoder allocates for them.
//!
//! A page header states the size of its page after decompression, and the number of its values; a
//! damaged or hostile one states 2 GiB. Decoders believe it. Headers are structs in Thrift's
//! compact protocol, of which only three fields matter here.

use parquet::basic::Compression;
use parquet::errors::ParquetError;

/// Deepest nesting of structs and lists that is followed.
const DEPTH: u32 = 16;

/// Checks the pages in `chunk`, the bytes of one column chunk.
///
/// Headers that cannot be parsed end the check: the decoder will say what is wrong with them.
///
/// # Errors
/// If a page claims more bytes than its compressed bytes can hold, or more values than `rows`.
pub(crate) fn check(chunk: &[u8], codec: Compression, rows: u64) -> Result<(), ParquetError> {
    let mut at = 0;
    while at < chunk.len() {
        let mut cursor = Cursor { bytes: chunk, at };
        let Some(header) = cursor.page_header() else { return Ok(()) };
        let (Ok(packed), Ok(unpacked), Ok(values)) = (
            u64::try_from(header.compressed),
            u64::try_from(header.uncompressed),
            u64::try_from(header.values),
        ) else {
            return Err(absurd("a negative size"));
        };
        let densest = match codec {
            Compression::UNCOMPRESSED => packed,
            // The densest element is a copy: three bytes stand for 64.
            Compression::SNAPPY => packed * 22 + 64,
            // Deflate's limit is 1,032 to one.
            _ => packed * 1033 + 64,
        };
        if unpacked > densest {
            return Err(absurd(&format!("{unpacked} bytes in {packed} compressed ones")));
        }
        // Every value of a dictionary takes four bytes at least.
        let most = if header.kind == DICTIONARY_PAGE { unpacked / 4 } else { rows };
        if values > most {
            return Err(absurd(&format!("{values} values where there are at most {most}")));
        }
        let Some(next) = cursor.at.checked_add(packed as usize) else { return Ok(()) };
        at = next;
    }
    Ok(())
}

fn absurd(what: &str) -> ParquetError {
    ParquetError::General(format!("a page header claims {what}"))
}

const DICTIONARY_PAGE: i64 = 2;

/// What matters of a page header (`PageHeader` in parquet.thrift).
#[derive(Default)]
struct PageHeader {
    /// Field 1.
    kind: i64,
    /// Field 2.
    uncompressed: i64,
    /// Field 3.
    compressed: i64,
    /// Field 1 of any of the fields 5, 7 and 8.
    values: i64,
}

/// Reads Thrift's compact protocol.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// Types of fields in Thrift's compact protocol.
mod kind {
    pub(super) const STOP: u8 = 0;
    pub(super) const TRUE: u8 = 1;
    pub(super) const FALSE: u8 = 2;
    pub(super) const BYTE: u8 = 3;
    pub(super) const I16: u8 = 4;
    pub(super) const I64: u8 = 6;
    pub(super) const DOUBLE: u8 = 7;
    pub(super) const BINARY: u8 = 8;
    pub(super) const LIST: u8 = 9;
    pub(super) const SET: u8 = 10;
    pub(super) const STRUCT: u8 = 12;
}

impl Cursor<'_> {
    fn page_header(&mut self) -> Option<PageHeader> {
        let mut header = PageHeader::default();
        let mut id = 0;
        loop {
            let (field, of) = self.field(id)?;
            id = field;
            match (field, of) {
                (_, kind::STOP) => return Some(header),
                (1, kind::I16..=kind::I64) => header.kind = self.integer()?,
                (2, kind::I16..=kind::I64) => header.uncompressed = self.integer()?,
                (3, kind::I16..=kind::I64) => header.compressed = self.integer()?,
                (5 | 7 | 8, kind::STRUCT) => header.values = self.first_integer()?,
                _ => self.skip(of, DEPTH)?,
            }
        }
    }

    /// Field 1 of a struct, an integer; 0 if it has none.
    fn first_integer(&mut self) -> Option<i64> {
        let mut id = 0;
        let mut first = 0;
        loop {
            let (field, of) = self.field(id)?;
            id = field;
            match (field, of) {
                (_, kind::STOP) => return Some(first),
                (1, kind::I16..=kind::I64) => first = self.integer()?,
                _ => self.skip(of, DEPTH)?,
            }
        }
    }

    /// Id and type of the next field, `last` being the id of the one before.
    fn field(&mut self, last: i64) -> Option<(i64, u8)> {
        let byte = self.byte()?;
        let of = byte & 15;
        if of == kind::STOP {
            return Some((last, of));
        }
        let delta = i64::from(byte >> 4);
        let id = if delta == 0 { self.integer()? } else { last.checked_add(delta)? };
        Some((id, of))
    }

    fn skip(&mut self, of: u8, depth: u32) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match of {
            kind::TRUE | kind::FALSE => Some(()),
            kind::BYTE => self.byte().map(|_| ()),
            kind::I16..=kind::I64 => self.integer().map(|_| ()),
            kind::DOUBLE => self.advance(8),
            kind::BINARY => {
                let length = usize::try_from(self.varint()?).ok()?;
                self.advance(length)
            }
            kind::LIST | kind::SET => {
                let byte = self.byte()?;
                let short = u64::from(byte >> 4);
                let length = if short == 15 { self.varint()? } else { short };
                let of = byte & 15;
                for _ in 0..length {
                    match of {
                        // Inside a list, a boolean takes a byte.
                        kind::TRUE | kind::FALSE => self.advance(1)?,
                        _ => self.skip(of, depth)?,
                    }
                }
                Some(())
            }
            kind::STRUCT => {
                let mut id = 0;
                loop {
                    let (field, of) = self.field(id)?;
                    id = field;
                    if of == kind::STOP {
                        return Some(());
                    }
                    self.skip(of, depth)?;
                }
            }
            // Maps do not occur.
            _ => None,
        }
    }

    fn integer(&mut self) -> Option<i64> {
        let v = self.varint()?;
        Some((v >> 1).cast_signed() ^ -((v & 1).cast_signed()))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 127).checked_shl(shift)?;
            if byte & 128 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn advance(&mut self, by: usize) -> Option<()> {
        self.at = self.at.checked_add(by).filter(|at| *at <= self.bytes.len())?;
        Some(())
    }
}
