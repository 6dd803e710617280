//! Notes that linkers leave in programs.

/// Bytes in front of a note's name: the lengths of name and content, and the kind.
const HEADER_BYTES: usize = 12;

/// Whether one of a row of notes has this name, with the zero behind it, and kind.
#[must_use]
pub fn has_note(mut notes: &[u8], name: &[u8], kind: u32) -> bool {
    let word = |notes: &[u8], index: usize| {
        notes.get(4 * index..4 * index + 4).map(|word| u32::from_ne_bytes(word.try_into().expect("four bytes")))
    };
    while let (Some(name_bytes), Some(bytes), Some(of_kind)) = (word(notes, 0), word(notes, 1), word(notes, 2)) {
        if of_kind == kind && name_bytes as usize == name.len() && notes[HEADER_BYTES..].starts_with(name) {
            return true;
        }
        let padded = |bytes: u32| (bytes as usize).next_multiple_of(4);
        let Some(rest) = notes.get(HEADER_BYTES + padded(name_bytes) + padded(bytes)..) else { break };
        notes = rest;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(name: &[u8], kind: u32, content: &[u8]) -> Vec<u8> {
        let words = [name.len() as u32, content.len() as u32, kind];
        let padded = |bytes: &[u8]| [bytes, &[0; 4][..bytes.len().next_multiple_of(4) - bytes.len()]].concat();
        [words.iter().flat_map(|word| word.to_ne_bytes()).collect(), padded(name), padded(content)].concat()
    }

    #[test]
    fn a_note_is_found_among_others() {
        let (gnu, go) = (note(b"GNU\0", 3, b"twenty bytes and two"), note(b"Go\0\0", 4, b"an id"));
        let is_go = |notes: &[u8]| has_note(notes, b"Go\0\0", 4);
        assert!(is_go(&go) && is_go(&[&gnu[..], &go].concat()) && is_go(&[&go[..], &gnu].concat()));
        assert!(!is_go(&gnu) && !is_go(&[]) && !is_go(&go[..10]) && !is_go(&go[..14]));
        assert!(!is_go(&note(b"Go\0\0", 3, b"")) && !is_go(&note(b"GNU\0", 4, b"Go")));
    }
}
