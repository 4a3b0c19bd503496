//! Thrift's compact protocol, walked without meaning: only to see what it claims.
//!
//! The walk takes the same steps as the Parquet decoder does over fields that it skips, among them
//! its mistake: it takes booleans in a list to need no bytes, and so spends minutes on a list that
//! claims 2^31 of them.

/// Deepest nesting that the decoder follows.
const DEPTH: u32 = 64;

/// Why a walk ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Not Thrift, or cut off: the decoder will say so.
    Unreadable,
    /// More elements than there are bytes.
    Absurd(u64),
}

/// What matters of a page header (`PageHeader` in parquet.thrift).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageHeader {
    /// Field 1; 2 is a dictionary page.
    pub(crate) kind: i64,
    /// Field 2.
    pub(crate) uncompressed: i64,
    /// Field 3.
    pub(crate) compressed: i64,
    /// Field 1 of any of the fields 5, 7 and 8.
    pub(crate) values: i64,
}

/// Types of fields and elements.
mod of {
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
    pub(super) const MAP: u8 = 11;
    pub(super) const STRUCT: u8 = 12;
    pub(super) const UUID: u8 = 13;
}

/// A position in bytes.
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Elements without bytes that may still be claimed: as many as there are bytes.
    weightless: u64,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Cursor { bytes, at: 0, weightless: bytes.len() as u64 }
    }

    /// Whether all bytes are read.
    pub(crate) fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// Reads a page header.
    ///
    /// # Errors
    /// [`Stop`].
    pub(crate) fn page_header(&mut self) -> Result<PageHeader, Stop> {
        let mut header = PageHeader::default();
        let mut id = 0;
        loop {
            let (field, kind) = self.field(id)?;
            id = field;
            match (field, kind) {
                (_, of::STOP) => return Ok(header),
                (1, of::I16..=of::I64) => header.kind = self.integer()?,
                (2, of::I16..=of::I64) => header.uncompressed = self.integer()?,
                (3, of::I16..=of::I64) => header.compressed = self.integer()?,
                (5 | 7 | 8, of::STRUCT) => header.values = self.first_integer()?,
                _ => self.skip(kind, DEPTH)?,
            }
        }
    }

    /// Walks over a struct.
    ///
    /// # Errors
    /// [`Stop`].
    pub(crate) fn walk(&mut self) -> Result<(), Stop> {
        self.skip(of::STRUCT, DEPTH)
    }

    /// Moves on by so many bytes.
    ///
    /// # Errors
    /// [`Stop::Unreadable`] if there are fewer.
    pub(crate) fn advance(&mut self, by: u64) -> Result<(), Stop> {
        let by = usize::try_from(by).map_err(|_| Stop::Unreadable)?;
        let to = self.at.checked_add(by).filter(|at| *at <= self.bytes.len());
        self.at = to.ok_or(Stop::Unreadable)?;
        Ok(())
    }

    /// Field 1 of a struct, an integer; 0 if it has none.
    fn first_integer(&mut self) -> Result<i64, Stop> {
        let mut id = 0;
        let mut first = 0;
        loop {
            let (field, kind) = self.field(id)?;
            id = field;
            match (field, kind) {
                (_, of::STOP) => return Ok(first),
                (1, of::I16..=of::I64) => first = self.integer()?,
                _ => self.skip(kind, DEPTH)?,
            }
        }
    }

    /// Id and type of the next field, `last` being the id of the one before.
    fn field(&mut self, last: i64) -> Result<(i64, u8), Stop> {
        let byte = self.byte()?;
        let kind = byte & 15;
        if kind == of::STOP {
            return Ok((last, kind));
        }
        let delta = i64::from(byte >> 4);
        let id = if delta == 0 { self.integer()? } else { last.saturating_add(delta) };
        Ok((id, kind))
    }

    fn skip(&mut self, kind: u8, depth: u32) -> Result<(), Stop> {
        let inner = depth.checked_sub(1).ok_or(Stop::Unreadable)?;
        match kind {
            of::TRUE | of::FALSE => Ok(()),
            of::BYTE => self.advance(1),
            of::I16..=of::I64 => self.varint().map(|_| ()),
            of::DOUBLE => self.advance(8),
            of::UUID => self.advance(16),
            of::BINARY => {
                let length = self.varint()?;
                self.advance(length)
            }
            of::LIST | of::SET => {
                let byte = self.byte()?;
                let short = u64::from(byte >> 4);
                let length = if short == 15 { self.varint()? } else { short };
                self.elements(length, &[byte & 15], inner)
            }
            of::MAP => {
                let length = self.varint()?;
                let kinds = if length > 0 { self.byte()? } else { 0 };
                self.elements(length, &[kinds >> 4, kinds & 15], inner)
            }
            of::STRUCT => loop {
                // As the decoder does, which skips without regard to ids.
                let (_, kind) = self.field(0)?;
                if kind == of::STOP {
                    return Ok(());
                }
                self.skip(kind, inner)?;
            },
            _ => Err(Stop::Unreadable),
        }
    }

    /// Skips so many elements, each made of values of these types.
    fn elements(&mut self, length: u64, kinds: &[u8], depth: u32) -> Result<(), Stop> {
        let left = (self.bytes.len() - self.at) as u64;
        if kinds.iter().all(|k| matches!(*k, of::TRUE | of::FALSE)) {
            self.weightless = self.weightless.checked_sub(length).ok_or(Stop::Absurd(length))?;
            return Ok(());
        }
        // Everything else takes a byte at least.
        if length > left {
            return Err(Stop::Absurd(length));
        }
        for _ in 0..length {
            for kind in kinds {
                self.skip(*kind, depth)?;
            }
        }
        Ok(())
    }

    fn integer(&mut self) -> Result<i64, Stop> {
        let v = self.varint()?;
        Ok((v >> 1).cast_signed() ^ -((v & 1).cast_signed()))
    }

    /// As the decoder reads them: of any length, bits beyond the 64th wrapping around.
    fn varint(&mut self) -> Result<u64, Stop> {
        let mut value = 0_u64;
        let mut shift = 0_u32;
        loop {
            let byte = self.byte()?;
            value |= u64::from(byte & 127).wrapping_shl(shift);
            if byte & 128 == 0 {
                return Ok(value);
            }
            shift = shift.wrapping_add(7);
        }
    }

    fn byte(&mut self) -> Result<u8, Stop> {
        let byte = *self.bytes.get(self.at).ok_or(Stop::Unreadable)?;
        self.at += 1;
        Ok(byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(bytes: &[u8]) -> Result<(), Stop> {
        Cursor::new(bytes).walk()
    }

    #[test]
    fn walks_every_type() {
        let mut bytes = vec![0x11, 0x12, 0x13, 7, 0x14, 0x80, 0x01, 0x17, 0, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend([0x18, 2, b'a', b'b']); // text
        bytes.extend([0x19, 0x25, 1, 2]); // two integers
        bytes.extend([0x1A, 0x18, 1, b'x']); // a set of one text
        bytes.extend([0x1B, 1, 0x85, 1, b'k', 9]); // a map from text to integer
        bytes.extend([0x1B, 0]); // an empty map
        bytes.extend([0x1C, 0x15, 3, 0]); // a struct
        bytes.extend([0x1D; 17]); // an identifier of 16 bytes
        bytes.extend([0x05, 0x80, 0x02, 4]); // a field whose id is written out
        bytes.extend([0x19, 0x00]); // an empty list without a type
        bytes.push(0);
        let mut cursor = Cursor::new(&bytes);
        assert_eq!(cursor.walk(), Ok(()));
        assert!(cursor.is_at_end());
        for end in 0..bytes.len() {
            assert!(walk(&bytes[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn claims_are_bounded_by_bytes() {
        let many = [0xFF, 0xFF, 0xFF, 0xFF, 0x07];
        let n = (1 << 31) - 1;
        for element in [of::TRUE, of::FALSE, of::BYTE, of::STRUCT, of::LIST] {
            let list = [&[0x19, 0xF0 | element][..], &many, &[0]].concat();
            assert_eq!(walk(&list), Err(Stop::Absurd(n)), "element {element}");
        }
        let map = [&[0x1B][..], &many, &[0x11, 0]].concat();
        assert_eq!(walk(&map), Err(Stop::Absurd(n)));
        // Few are fine, but not over and over.
        assert_eq!(walk(&[0x19, 0x31, 0]), Ok(()));
        let lists: Vec<u8> = [0x19, 0xE1].repeat(100).into_iter().chain([0]).collect();
        assert_eq!(walk(&lists), Err(Stop::Absurd(14)));
    }

    #[test]
    fn nesting_is_bounded() {
        assert_eq!(walk(&vec![0x1C; 100_000]), Err(Stop::Unreadable));
        assert_eq!(walk(&vec![0x19; 100_000]), Err(Stop::Unreadable));
    }
}
