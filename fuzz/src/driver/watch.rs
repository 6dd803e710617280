//! [`Watch`]: keeps the input that is being run where it outlives the process, and sees a run that does not end.
//!
//! A run that ends the process, such as one whose stack overflows, cannot be caught; whoever started the process finds
//! its input with [`Watch::last_input`].

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long one run may take.
const RUN_MAX: Duration = Duration::from_secs(10);

/// What is being run.
#[derive(Debug)]
pub struct Watch {
    path: PathBuf,
    file: File,
    origin: Instant,
    /// When the run began, in milliseconds since the origin, plus 1; 0 between runs.
    began: AtomicU64,
}

impl Watch {
    /// Keeps inputs in the file at `path`.
    ///
    /// # Errors
    /// One line if it cannot be written.
    pub fn new(path: &Path) -> Result<Self, String> {
        let wrong = |error: std::io::Error| format!("{}: {error}", path.display());
        fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).map_err(wrong)?;
        let file = File::create(path).map_err(wrong)?;
        Ok(Self { path: path.to_owned(), file, origin: Instant::now(), began: AtomicU64::new(0) })
    }

    /// A run begins.
    ///
    /// # Panics
    /// If the input cannot be kept: the disk is full, or it was taken away.
    pub fn begin(&self, input: &[u8]) {
        let length = (input.len() as u64).to_le_bytes();
        let kept = self.file.write_all_at(&[&length[..], input].concat(), 0);
        kept.unwrap_or_else(|error| panic!("{}: {error}", self.path.display()));
        self.began.store(self.origin.elapsed().as_millis() as u64 + 1, Ordering::Release);
    }

    /// The run has ended.
    pub fn end(&self) {
        self.began.store(0, Ordering::Release);
    }

    /// Whether the run under way takes too long.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        let began = self.began.load(Ordering::Acquire);
        let elapsed = self.origin.elapsed().as_millis() as u64;
        began > 0 && elapsed.saturating_sub(began) > RUN_MAX.as_millis() as u64
    }

    /// The input of the last run that began, from the file at `path`.
    #[must_use]
    pub fn last_input(path: &Path) -> Option<Vec<u8>> {
        let bytes = fs::read(path).ok()?;
        let (length, rest) = bytes.split_first_chunk()?;
        rest.get(..usize::try_from(u64::from_le_bytes(*length)).ok()?).map(<[u8]>::to_vec)
    }
}
