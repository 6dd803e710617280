//! [`Words`]: what a tree is filled with: the lines of a file, or words that are made up.

use std::collections::BTreeSet;
use std::path::Path;

use crate::AppError;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::tree::KEY_BYTES_MAX;

/// Where a word list usually is.
pub const WORDS_FILE: &str = "/usr/share/dict/words";

const STARTS: [&str; 20] =
    ["b", "br", "c", "ch", "d", "f", "g", "gr", "h", "l", "m", "n", "p", "pl", "r", "s", "st", "t", "tr", "w"];
const VOWELS: [&str; 8] = ["a", "e", "i", "o", "u", "ea", "io", "ou"];
const ENDS: [&str; 10] = ["", "", "", "n", "r", "s", "t", "l", "ng", "ck"];

/// Different words, and where they come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Words {
    /// The words, in the order of bytes.
    pub list: Vec<Vec<u8>>,
    /// The file, or `generated`.
    pub source: String,
}

impl Words {
    /// The first `most` different lines of `file`; of [`WORDS_FILE`] without one, and made up if there is none.
    pub fn load(file: Option<&Path>, most: usize) -> Result<Self, AppError> {
        let usual = Path::new(WORDS_FILE);
        match file.or_else(|| usual.exists().then_some(usual)) {
            Some(file) => Self::read(file, most),
            None => Ok(Self { list: generate(most), source: "generated".to_owned() }),
        }
    }

    fn read(file: &Path, most: usize) -> Result<Self, AppError> {
        let failed = |cause: String| AppError::File { path: file.display().to_string(), cause };
        let bytes =
            std::fs::read(file).map_err(|error| failed(format!("{error}; name a file with a word in each line")))?;
        let mut list = BTreeSet::new();
        for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.len() > KEY_BYTES_MAX {
                let length = line.len();
                let line = number + 1;
                return Err(failed(format!("line {line} has {length} bytes: shorten it to {KEY_BYTES_MAX}")));
            }
            if !line.is_empty() && list.len() < most {
                list.insert(line.to_vec());
            }
        }
        if list.is_empty() {
            return Err(failed("there are no words in it: name a file with a word in each line".to_owned()));
        }
        Ok(Self { list: list.into_iter().collect(), source: file.display().to_string() })
    }
}

/// Words that can be spoken; always the same.
fn generate(count: usize) -> Vec<Vec<u8>> {
    let mut random = SmallRng::seed_from_u64(1);
    let mut list = BTreeSet::new();
    while list.len() < count {
        let syllables = random.random_range(1..=4);
        let mut pick = |parts: &[&'static str]| parts[random.random_range(0..parts.len())];
        let word: String = (0..syllables).map(|_| [pick(&STARTS), pick(&VOWELS), pick(&ENDS)].concat()).collect();
        list.insert(word.into_bytes());
    }
    list.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_made_up_alike_every_time() {
        let words = generate(2000);
        assert_eq!(words, generate(2000));
        assert_eq!(words.len(), 2000);
        assert!(words.is_sorted() && words.iter().all(|word| word.len() <= 28));
    }

    #[test]
    fn a_file_is_read_line_by_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("words");
        std::fs::write(&file, "pear\r\n\napple\npear\nplum\nzebra").unwrap();
        let words = Words::load(Some(&file), 3).unwrap();
        assert_eq!(words.list, [&b"apple"[..], b"pear", b"plum"]);
        assert_eq!(words.source, file.display().to_string());
        std::fs::write(&file, "x".repeat(300)).unwrap();
        let refused = Words::load(Some(&file), 3).unwrap_err().to_string();
        assert!(refused.ends_with("line 1 has 300 bytes: shorten it to 256"), "{refused}");
        std::fs::write(&file, "\n\n").unwrap();
        assert!(Words::load(Some(&file), 3).unwrap_err().to_string().contains("a word in each line"));
        assert!(
            Words::load(Some(&folder.path().join("none")), 3).unwrap_err().to_string().contains("a word in each line")
        );
    }
}
