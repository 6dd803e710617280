//! How Redis lays strings and lists out: facts of versions 6 and 7, which packaged servers have.

use yonder_guide::word;

/// Bytes of the headers of strings whose length is a half, a whole or a double word.
pub(crate) const STRING_HEADERS: [usize; 3] = [5, 9, 17];
/// Bytes of the largest header.
pub(crate) const STRING_HEADER_MAX: usize = 17;

/// Bytes of the text behind a header.
///
/// A dynamic string (SDS) has a header and then the text. A header begins with the length, as wide as its kind says;
/// then come the capacity, as wide, and a byte that has the kind in its lowest three bits.
pub(crate) fn text_bytes(header: &[u8]) -> Option<u64> {
    let (last, fields) = header.split_last()?;
    let width = match (last & 7, header.len()) {
        (2, 5) => 2,
        (3, 9) => 4,
        (4, 17) => 8,
        // A short string is of one page, and nothing to fetch ahead.
        _ => return None,
    };
    let [length, capacity] = [0, width].map(|at| {
        let mut field = [0; 8];
        field[..width].copy_from_slice(&fields[at..at + width]);
        u64::from_le_bytes(field)
    });
    (length > 0 && length <= capacity && capacity < 1 << 40).then_some(length)
}

/// Most bytes of a node's entries, but for elements that are as long by themselves.
const ENTRIES_BYTES_MAX: u64 = 128 << 10;
/// Bytes of a node that are of use.
pub(crate) const NODE_BYTES: usize = 32;

/// A node of a quicklist: pointers to the node before, to the next, and to its entries (a listpack, or a ziplist in
/// version 6); then the size of these in bytes, in version 6 in half a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Node {
    pub(crate) previous: u64,
    pub(crate) next: u64,
    pub(crate) entries: u64,
    pub(crate) entries_bytes: u64,
}

impl Node {
    pub(crate) fn parse(bytes: &[u8; NODE_BYTES]) -> Self {
        let [previous, next, entries, size] = [0, 8, 16, 24].map(|at| word(&bytes[at..]));
        Self { previous, next, entries, entries_bytes: size & 0xffff_ffff }
    }

    /// Whether `address` is of its entries.
    pub(crate) fn has(&self, address: u64) -> bool {
        (1..=ENTRIES_BYTES_MAX).contains(&self.entries_bytes)
            && (self.entries..self.entries.saturating_add(self.entries_bytes)).contains(&address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_strings_are_read_from_headers_of_each_width() {
        let header = |width: usize, length: u64, capacity: u64, kind: u8| {
            let mut bytes = length.to_le_bytes()[..width].to_vec();
            bytes.extend(&capacity.to_le_bytes()[..width]);
            bytes.push(kind);
            bytes
        };
        for (width, kind) in [(2, 2), (4, 3), (8, 4)] {
            assert_eq!(text_bytes(&header(width, 30_000, 40_000, kind)), Some(30_000));
            assert_eq!(text_bytes(&header(width, 30_000, 40_000, kind | 0x18)), Some(30_000), "higher bits are free");
            assert_eq!(text_bytes(&header(width, 0, 40_000, kind)), None);
            assert_eq!(text_bytes(&header(width, 40_001, 40_000, kind)), None);
            assert_eq!(text_bytes(&header(width, 30_000, 40_000, (kind + 1) % 5)), None);
        }
        assert_eq!(text_bytes(&header(8, 30_000, 1 << 41, 4)), None);
        assert_eq!(text_bytes(&[]), None);
    }

    #[test]
    fn nodes_of_both_versions_are_read() {
        let mut bytes = [0; NODE_BYTES];
        for (at, value) in [(0, 0x1000_u64), (8, 0x2000), (16, 0x3000), (24, 8_100 | 7 << 32)] {
            bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        }
        let node = Node::parse(&bytes);
        assert_eq!(node, Node { previous: 0x1000, next: 0x2000, entries: 0x3000, entries_bytes: 8_100 });
        assert!(node.has(0x3000) && node.has(0x3000 + 8_099) && !node.has(0x3000 + 8_100) && !node.has(0x2fff));
        assert!(!Node { entries_bytes: 0, ..node }.has(0x3000));
        assert!(!Node { entries_bytes: ENTRIES_BYTES_MAX + 1, ..node }.has(0x3000));
    }
}
