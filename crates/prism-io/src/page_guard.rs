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

#[cfg(test)]
mod tests {
    use super::*;

    /// A page header: fields 1 to 3, then the header of its kind, whose field 1 counts values.
    fn header(kind: i64, uncompressed: i64, compressed: i64, values: i64) -> Vec<u8> {
        let mut out = Vec::new();
        for v in [kind, uncompressed, compressed] {
            out.push(0x15);
            varint(&mut out, v);
        }
        // Skipped on the way: a checksum.
        out.push(0x15);
        varint(&mut out, -77);
        // Field 5 of data pages, 7 of dictionary pages.
        out.push(if kind == DICTIONARY_PAGE { 0x3C } else { 0x1C });
        out.push(0x15);
        varint(&mut out, values);
        // Skipped on the way: an encoding, a boolean, statistics with text.
        out.extend([0x15, 0x00, 0x11]);
        out.extend([0x1C, 0x18, 0x03, b'a', b'b', b'c', 0x00]);
        out.extend([0x00, 0x00]);
        out
    }

    fn varint(out: &mut Vec<u8>, v: i64) {
        let mut v = ((v << 1) ^ (v >> 63)).cast_unsigned();
        while v >= 128 {
            out.push(v as u8 | 128);
            v >>= 7;
        }
        out.push(v as u8);
    }

    fn page(kind: i64, uncompressed: i64, compressed: i64, values: i64) -> Vec<u8> {
        let mut out = header(kind, uncompressed, compressed, values);
        out.resize(out.len() + usize::try_from(compressed).unwrap_or(0), 0xAB);
        out
    }

    fn said(pages: &[Vec<u8>], codec: Compression) -> Result<(), String> {
        check(&pages.concat(), codec, 100).map_err(|e| e.to_string())
    }

    #[test]
    fn honest_pages_pass() {
        let pages = [page(DICTIONARY_PAGE, 40, 30, 10), page(0, 300, 200, 60), page(0, 9, 9, 40)];
        assert_eq!(said(&pages, Compression::SNAPPY), Ok(()));
        assert_eq!(said(&pages[2..], Compression::UNCOMPRESSED), Ok(()));
    }

    #[test]
    fn claims_are_bounded() {
        let good = page(0, 300, 200, 60);
        for (bad, codec, expected) in [
            (page(0, 10, 9, 1), Compression::UNCOMPRESSED, "10 bytes in 9 compressed ones"),
            (
                page(0, 1 << 31, 50, 1),
                Compression::SNAPPY,
                "2147483648 bytes in 50 compressed ones",
            ),
            (page(0, 22 * 50 + 65, 50, 1), Compression::SNAPPY, "1165 bytes in 50 compressed ones"),
            (page(0, 300, 200, 101), Compression::SNAPPY, "101 values where there are at most 100"),
            (
                page(DICTIONARY_PAGE, 40, 40, 11),
                Compression::SNAPPY,
                "11 values where there are at most 10",
            ),
            (page(0, -1, 5, 1), Compression::SNAPPY, "a negative size"),
            (page(0, 5, -1, 1), Compression::SNAPPY, "a negative size"),
            (page(0, 5, 5, -1), Compression::SNAPPY, "a negative size"),
        ] {
            // Alone, where the good page is no page of this codec.
            let pages =
                if codec == Compression::SNAPPY { vec![good.clone(), bad] } else { vec![bad] };
            let message = said(&pages, codec).unwrap_err();
            assert!(message.ends_with(&format!("claims {expected}")), "{message}");
        }
        assert_eq!(said(&[page(0, 22 * 50 + 64, 50, 1)], Compression::SNAPPY), Ok(()));
        let gzip = Compression::GZIP(parquet::basic::GzipLevel::default());
        assert_eq!(said(&[page(0, 1000 * 50, 50, 1)], gzip), Ok(()));
        assert!(said(&[page(0, 1100 * 50, 50, 1)], gzip).is_err());
    }

    /// Whatever follows, the check ends: headers that cannot be parsed are left to the decoder.
    #[test]
    fn garbage_ends() {
        let mut state = 1_u32;
        for length in 0..2000 {
            let bytes: Vec<u8> = (0..length % 97)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 24) as u8
                })
                .collect();
            let _ = check(&bytes, Compression::SNAPPY, 100);
        }
        // A list that claims 2^63 structs, and nesting without end.
        let endless = [0x19, 0xFC, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F];
        assert!(check(&endless, Compression::SNAPPY, 100).is_ok());
        assert!(check(&vec![0x1C; 100_000], Compression::SNAPPY, 100).is_ok());
        // A list of 2^63 elements without content cannot be: each takes a byte.
        let booleans = [0x19, 0xF1, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F];
        assert!(check(&booleans, Compression::SNAPPY, 100).is_ok());
    }
}
