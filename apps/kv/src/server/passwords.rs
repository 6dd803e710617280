//! [`Passwords`]: who is let in, from a file of lines `user:password` (memcached's `-Y`).
//!
//! No password is kept: each line becomes a tag under a key that only this process has, and what a client says is
//! compared as its tag. How long that takes says nothing of the lines, but how many there are.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ring::hmac;
use ring::rand::SystemRandom;
use yonder_identity::{IdentityError, read_secret};

use super::KvError;

/// Lines that are read.
const ENTRIES_MAX: usize = 1024;
/// Between a user and a password. It is in neither.
const SEPARATOR: u8 = b' ';

/// The tags of all users with their passwords.
type Tags = Arc<[[u8; 32]]>;

/// Who is let in. Any thread may read the file again.
#[derive(Debug)]
pub(super) struct Passwords {
    path: PathBuf,
    key: hmac::Key,
    tags: Mutex<Tags>,
    attempts: AtomicU64,
    failures: AtomicU64,
}

impl Passwords {
    /// Reads the file.
    pub(super) fn open(path: PathBuf) -> Result<Self, KvError> {
        // It fails only where the kernel has no randomness, and then nothing here works.
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).expect("the kernel has randomness");
        let none = AtomicU64::default;
        let passwords = Self { path, key, tags: Mutex::new(Arc::new([])), attempts: none(), failures: none() };
        passwords.reload()?;
        Ok(passwords)
    }

    /// Reads the file again. If it cannot be used, all stays as it is.
    pub(super) fn reload(&self) -> Result<(), KvError> {
        let refused = |cause: String| KvError::AuthFile { path: self.path.clone(), cause };
        let text = read_secret(&self.path).map_err(|error| match error {
            IdentityError::File { cause, .. } => refused(cause.to_string()),
            error => KvError::Secret(Box::new(error)),
        })?;
        let mut tags = Vec::new();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
            let (user, password) = line.split_once(':').unwrap_or_default();
            if user.is_empty() || password.is_empty() || line.contains(char::from(SEPARATOR)) {
                return Err(refused(format!("line {} is not user:password without blanks", number + 1)));
            }
            tags.push(self.tag(user.as_bytes(), password.as_bytes()));
        }
        if tags.is_empty() || tags.len() > ENTRIES_MAX {
            return Err(refused(format!("it has {} users, and may have 1 to {ENTRIES_MAX}", tags.len())));
        }
        *self.tags.lock().unwrap_or_else(PoisonError::into_inner) = tags.into();
        Ok(())
    }

    /// Whether there is such a user with this password.
    #[must_use]
    pub(super) fn accept(&self, user: &[u8], password: &[u8]) -> bool {
        let tags = Arc::clone(&self.tags.lock().unwrap_or_else(PoisonError::into_inner));
        let tag = self.tag(user, password);
        // All lines are looked at, and of each all bytes.
        let is_known = tags.iter().fold(false, |found, known| found | is_same(known, &tag));
        self.attempts.fetch_add(1, Ordering::Relaxed);
        self.failures.fetch_add(u64::from(!is_known), Ordering::Relaxed);
        is_known
    }

    /// How often somebody tried, and how often it was wrong.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.attempts.load(Ordering::Relaxed), self.failures.load(Ordering::Relaxed))
    }

    /// Sets the counts to zero.
    pub(super) fn reset(&self) {
        self.attempts.store(0, Ordering::Relaxed);
        self.failures.store(0, Ordering::Relaxed);
    }

    fn tag(&self, user: &[u8], password: &[u8]) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.key);
        [user, &[SEPARATOR], password].into_iter().for_each(|part| context.update(part));
        context.sign().as_ref().try_into().expect("SHA-256 has 32 bytes")
    }
}

fn is_same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    one.iter().zip(other).fold(0, |differ, (one, other)| differ | (one ^ other)) == 0
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;

    fn write(path: &Path, text: &str) {
        std::fs::write(path, text).expect("a temporary folder takes files");
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(path, private).expect("the file is ours");
    }

    #[test]
    fn users_are_let_in_with_their_own_password_alone() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("auth");
        write(&path, "alice:secret\r\n\nbob:x:y\n");
        let passwords = Passwords::open(path.clone()).expect("the file is right");
        for (user, password, expected) in [
            ("alice", "secret", true),
            ("bob", "x:y", true),
            ("alice", "x:y", false),
            ("alice", "secre", false),
            ("alice", "secrett", false),
            ("alic", "esecret", false),
            ("", "", false),
        ] {
            assert_eq!(passwords.accept(user.as_bytes(), password.as_bytes()), expected, "{user} {password}");
        }
        assert_eq!(passwords.counts(), (7, 5));
        write(&path, "alice:new");
        passwords.reload().expect("the file is right");
        assert!(passwords.accept(b"alice", b"new") && !passwords.accept(b"alice", b"secret"));
        assert!(!passwords.accept(b"bob", b"x:y"));
    }

    #[test]
    fn a_file_that_cannot_be_used_says_why_and_changes_nothing() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("auth");
        write(&path, "alice:secret\n");
        let passwords = Passwords::open(path.clone()).expect("the file is right");
        for (text, said) in [
            ("alice:secret\nbob\n", "line 2 is not user:password"),
            ("al ice:secret\n", "line 1 is not"),
            ("alice:sec ret\n", "line 1 is not"),
            (":secret\n", "line 1 is not"),
            ("alice:\n", "line 1 is not"),
            ("\n", "it has 0 users"),
        ] {
            write(&path, text);
            let refused = passwords.reload().expect_err(text).to_string();
            assert!(refused.contains(said) && refused.contains("type ") && !refused.contains('\n'), "{refused}");
            assert!(passwords.accept(b"alice", b"secret"));
        }
        write(&path, "alice:secret\n");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("the file is ours");
        let refused = passwords.reload().expect_err("others may read it").to_string();
        assert!(refused.contains("chmod") && !refused.contains('\n'), "{refused}");
    }
}
