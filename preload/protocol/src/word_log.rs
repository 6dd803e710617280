//! [`WordLog`]: words that the threads of a process write one behind the other, in a file.
//!
//! The file is mapped, and its pages are reserved first: a word costs two stores in the fault path, and the words are
//! there if the process is killed. Forked children add to their parent's. A log that is full ends.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;
use yonder_mapping::Mapping;
use yonder_units::{Narrow, PAGE_BYTES};

use crate::create_private;

/// Says what is in the log.
const MAGIC_AT: u64 = 0;
/// How many words were claimed.
const COUNT_AT: u64 = 8;
const WORDS_AT: u64 = 16;
const WORD_BYTES: u64 = 8;

/// A kind of log.
pub(crate) struct LogKind {
    /// Says that the file is one of this layout.
    pub(crate) magic: u64,
    /// Words that it can have.
    pub(crate) words_max: u64,
    /// What a user calls it.
    pub(crate) name: &'static str,
}

impl LogKind {
    const fn bytes(&self) -> u64 {
        WORDS_AT + self.words_max * WORD_BYTES
    }

    /// Where the log of process number `number` of a run is, of those that are called after `stem`.
    pub(crate) fn path(stem: &Path, number: u64) -> PathBuf {
        let mut path = stem.as_os_str().to_owned();
        path.push(format!("-{number}"));
        path.into()
    }

    /// The logs of a run that are there, by the numbers of its processes.
    pub(crate) fn of_run(stem: &Path, processes: u64) -> Vec<PathBuf> {
        (1..=processes).map(|number| Self::path(stem, number)).filter(|path| path.exists()).collect()
    }

    /// Makes a log that is not there yet.
    pub(crate) fn create(&'static self, path: &Path) -> io::Result<WordLog> {
        let file = create_private(path)?;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, self.bytes())?;
        let words = self.map(&file)?;
        words.add_u64(MAGIC_AT, self.magic);
        Ok(WordLog { words, kind: self })
    }

    fn map(&self, file: &File) -> io::Result<Mapping> {
        if file.metadata()?.len() < self.bytes() {
            return Err(io::Error::other(format!("a {} is not whole", self.name)));
        }
        Mapping::shared(file.as_fd(), self.bytes().narrow_usize()).map_err(|error| io::Error::other(error.to_string()))
    }

    /// Gives back the room that a log has not used, or all of it if it has nothing. How many words it has. Its length
    /// stays: a child may still have it mapped, and would be killed where its file has ended.
    pub(crate) fn trim(&self, path: &Path) -> io::Result<u64> {
        let file = File::options().read(true).write(true).open(path)?;
        let count = self.map(&file)?.load_u64(COUNT_AT);
        if count == 0 {
            std::fs::remove_file(path)?;
        } else {
            let end = (WORDS_AT + count * WORD_BYTES).next_multiple_of(PAGE_BYTES as u64);
            // What a file system without holes keeps is only room.
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = rustix::fs::fallocate(&file, hole, end, self.bytes().saturating_sub(end));
        }
        Ok(count)
    }

    /// The words of a log in their order; what was claimed and not written is none.
    pub(crate) fn read(&self, path: &Path) -> io::Result<Vec<u64>> {
        let mut file = File::open(path)?;
        let mut words = |count: u64| {
            let mut bytes = Vec::new();
            (&mut file).take(count * WORD_BYTES).read_to_end(&mut bytes)?;
            let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
            Ok::<Vec<u64>, io::Error>(words.collect())
        };
        match words(2)?[..] {
            [magic, count] if magic == self.magic => {
                Ok(words(count.min(self.words_max))?.into_iter().filter(|word| *word != 0).collect())
            }
            _ => Err(io::Error::other(format!("{} is no {}", path.display(), self.name))),
        }
    }
}

/// A log that is written.
pub(crate) struct WordLog {
    words: Mapping,
    kind: &'static LogKind,
}

impl WordLog {
    /// Adds a word, which is not 0.
    #[inline]
    pub(crate) fn add(&self, word: u64) {
        let most = self.kind.words_max;
        let index = self.words.update_u64(COUNT_AT, |count| (count + 1).min(most));
        if index < most {
            self.words.add_u64(WORDS_AT + index * WORD_BYTES, word);
        }
    }

    /// How many words there are, of which the last may not be written yet.
    pub(crate) fn count(&self) -> u64 {
        self.words.load_u64(COUNT_AT).min(self.kind.words_max)
    }

    /// A word; 0 if it is not written yet.
    pub(crate) fn word(&self, index: u64) -> u64 {
        self.words.load_u64(WORDS_AT + index * WORD_BYTES)
    }
}
