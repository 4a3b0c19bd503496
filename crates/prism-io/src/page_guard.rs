//! Sizes that a Parquet file claims, checked before a decoder allocates or loops for them.
//!
//! A page header states the size of its page after decompression and the number of its values; a
//! damaged or hostile one states 2 GiB. Decoders believe it.

use parquet::basic::Compression;
use parquet::errors::ParquetError;

use crate::thrift::{Cursor, Stop};

/// Checks the footer of a file.
///
/// A footer that cannot be parsed ends the check: the decoder will say what is wrong with it.
///
/// # Errors
/// If it claims lists that are longer than the footer.
pub(crate) fn check_footer(file: &[u8]) -> Result<(), ParquetError> {
    let Some((body, [a, b, c, d, ..])) = file.split_last_chunk::<8>() else { return Ok(()) };
    let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
    let footer = body.len().checked_sub(length).and_then(|from| body.get(from..));
    match footer.map(|f| Cursor::new(f).walk()) {
        Some(Err(Stop::Absurd(n))) => Err(absurd("the footer", &format!("{n} elements"))),
        _ => Ok(()),
    }
}

/// Checks the pages in `chunk`, the bytes of one column chunk.
///
/// Headers that cannot be parsed end the check: the decoder will say what is wrong with them.
///
/// # Errors
/// If a page claims more bytes than its compressed bytes can hold, or more values than `rows`.
pub(crate) fn check(chunk: &[u8], codec: Compression, rows: u64) -> Result<(), ParquetError> {
    let mut cursor = Cursor::new(chunk);
    while !cursor.is_at_end() {
        let header = match cursor.page_header() {
            Ok(header) => header,
            Err(Stop::Unreadable) => return Ok(()),
            Err(Stop::Absurd(n)) => return Err(absurd(PAGE, &format!("{n} elements"))),
        };
        let (Ok(packed), Ok(unpacked), Ok(values)) = (
            u64::try_from(header.compressed),
            u64::try_from(header.uncompressed),
            u64::try_from(header.values),
        ) else {
            return Err(absurd(PAGE, "a negative size"));
        };
        let densest = match codec {
            Compression::UNCOMPRESSED => packed,
            // The densest element is a copy: three bytes stand for 64.
            Compression::SNAPPY => packed.saturating_mul(22).saturating_add(64),
            // Deflate's limit is 1,032 to one.
            _ => packed.saturating_mul(1033).saturating_add(64),
        };
        if unpacked > densest {
            return Err(absurd(PAGE, &format!("{unpacked} bytes in {packed} compressed ones")));
        }
        // Every value of a dictionary takes four bytes at least.
        let most = if header.kind == DICTIONARY_PAGE { unpacked / 4 } else { rows };
        if values > most {
            return Err(absurd(PAGE, &format!("{values} values where there are at most {most}")));
        }
        if cursor.advance(packed).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

const PAGE: &str = "a page header";

fn absurd(who: &str, what: &str) -> ParquetError {
    ParquetError::General(format!("{who} claims {what}"))
}

const DICTIONARY_PAGE: i64 = 2;

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
    }

    #[test]
    fn endless_lists_are_absurd() {
        let list = [0x19, 0xF1, 0xFF, 0xFF, 0xFF, 0xFF, 0x07, 0x00];
        let message = said(&[list.to_vec()], Compression::SNAPPY).unwrap_err();
        assert!(message.ends_with("a page header claims 2147483647 elements"), "{message}");
        let mut file = b"PAR1".to_vec();
        file.extend(list);
        file.extend((list.len() as u32).to_le_bytes());
        file.extend(b"PAR1");
        let message = check_footer(&file).unwrap_err().to_string();
        assert!(message.ends_with("the footer claims 2147483647 elements"), "{message}");
        for end in 0..file.len() {
            assert!(check_footer(&file[..end]).is_ok(), "cut at {end}");
        }
    }
}
