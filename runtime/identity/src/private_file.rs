//! Files with secrets: read only if their user alone may read and change them, made so that others never could.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use zeroize::Zeroizing;

use crate::IdentityError;

/// Largest file that is read: a list of a hundred thousand revoked certificates.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// The text of a file that has a secret.
pub(crate) fn read_secret(path: &Path) -> Result<Zeroizing<String>, IdentityError> {
    let failed = |cause| IdentityError::File { path: path.to_owned(), cause };
    let file = File::open(path).map_err(failed)?;
    // The open file is looked at: the name may stand for another one a moment later.
    check_private(path, &file.metadata().map_err(failed)?, 0o600)?;
    read_bounded(file).map_err(failed)
}

/// The text of a file that has no secret; `None` if there is no such file.
pub(crate) fn read_public(path: &Path) -> Result<Option<Zeroizing<String>>, IdentityError> {
    let failed = |cause| IdentityError::File { path: path.to_owned(), cause };
    match File::open(path) {
        Ok(file) => read_bounded(file).map(Some).map_err(failed),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

fn read_bounded(file: File) -> io::Result<Zeroizing<String>> {
    // No buffer that grows leaves a copy behind.
    let mut text =
        Zeroizing::new(String::with_capacity(usize::try_from(file.metadata()?.len()).unwrap_or(0).min(1 << 16)));
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is too large"));
    }
    Ok(text)
}

/// Fails if another user owns a file or folder, or may use it.
pub(crate) fn check_private(path: &Path, found: &Metadata, mode: u32) -> Result<(), IdentityError> {
    let exposed = |cause: &str, mends: String| {
        Err(IdentityError::Exposed { path: path.to_owned(), cause: cause.to_owned(), mends })
    };
    let shown = path.display();
    if found.uid() != rustix::process::geteuid().as_raw() {
        return exposed("another user owns it", format!("`chown $(id -u) {shown}` as root"));
    }
    if found.mode() & 0o077 != 0 {
        return exposed("other users may open it", format!("`chmod {mode:o} {shown}`"));
    }
    Ok(())
}

/// Makes a file that only its user may read. It must not be there.
pub(crate) fn create_secret(path: &Path, text: &str) -> Result<(), IdentityError> {
    let failed = |cause: io::Error| match cause.kind() {
        io::ErrorKind::AlreadyExists => IdentityError::FileExists { path: path.to_owned() },
        _ => IdentityError::File { path: path.to_owned(), cause },
    };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)
}

/// Puts a text in place of a file's, whole or not at all.
pub(crate) fn replace(path: &Path, text: &str, mode: u32) -> Result<(), IdentityError> {
    let failed = |cause| IdentityError::File { path: path.to_owned(), cause };
    let beside = path.with_extension("new");
    let write = || {
        // What an earlier attempt left.
        let _ = std::fs::remove_file(&beside);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&beside, path)
    };
    write().map_err(failed)
}

/// Makes a folder that only its user may enter, with what leads there; or finds it.
pub(crate) fn create_folder(path: &Path) -> Result<(), IdentityError> {
    let failed = |cause| IdentityError::File { path: path.to_owned(), cause };
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
    check_private(path, &std::fs::metadata(path).map_err(failed)?, 0o700)
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_secret_that_others_may_read_is_refused_with_what_mends_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        create_secret(&path, "text").unwrap();
        assert_eq!(*read_secret(&path).unwrap(), "text");
        assert!(matches!(create_secret(&path, "other"), Err(IdentityError::FileExists { .. })));
        for mode in [0o640, 0o604, 0o622] {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let said = read_secret(&path).unwrap_err().to_string();
            assert!(said.ends_with(&format!("type `chmod 600 {}`", path.display())), "{said}");
        }
    }

    #[test]
    fn a_secret_of_another_user_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        create_secret(&path, "text").unwrap();
        if let Err(error) = std::os::unix::fs::chown(&path, Some(12345), None) {
            println!("SKIP: only root gives files away ({error})");
            return;
        }
        let said = read_secret(&path).unwrap_err().to_string();
        assert!(said.contains("another user owns it") && said.contains("chown"), "{said}");
    }
}
