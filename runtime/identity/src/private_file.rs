//! Files with secrets: read only if their user alone may read and change them, or systemd has handed them to this
//! service; made so that others never could. And files without secrets that others must not have written.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use zeroize::Zeroizing;

use crate::IdentityError;

/// What makes an open return at once, whatever is there: a FIFO would wait for a writer.
const AT_ONCE: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY);
/// Largest file that is read: a list of a hundred thousand revoked certificates.
const FILE_BYTES_MAX: u64 = 8 << 20;
/// Number of root, who may write everything anyway.
const ROOT: u32 = 0;
/// Names the folder in which systemd hands a service what `LoadCredential=` says.
const CREDENTIALS_VARIABLE: &str = "CREDENTIALS_DIRECTORY";

/// The text of a file that has a secret: it is its user's, and no one else may open it; or it is one that systemd hands
/// to the service that this process is.
pub fn read_secret(path: &Path) -> Result<Zeroizing<String>, IdentityError> {
    read_secret_of(path, std::env::var_os(CREDENTIALS_VARIABLE).as_deref().map(Path::new))
}

/// The same for a service that finds what systemd hands it in `handed`.
fn read_secret_of(path: &Path, handed: Option<&Path>) -> Result<Zeroizing<String>, IdentityError> {
    let failed = |cause| IdentityError::File { path: path.to_owned(), cause };
    let file = File::open(path).map_err(failed)?;
    // The open file is looked at: the name may stand for another one a moment later.
    let found = file.metadata().map_err(failed)?;
    if !handed.is_some_and(|folder| is_handed(path, &found, folder)) {
        check_private(path, &found, 0o600)?;
    }
    read_bounded(file).map_err(failed)
}

/// Whether systemd hands a file to a service in `folder`: file and folder are root's, and root alone has put it there.
/// Its mode may let its group read it: that is how the mode shows an entry for the service's user in a list of access.
fn is_handed(path: &Path, found: &Metadata, folder: &Path) -> bool {
    let is_roots = |found: &Metadata, denied: u32| found.uid() == ROOT && found.mode() & denied == 0;
    path.parent() == Some(folder)
        && found.is_file()
        && is_roots(found, 0o037)
        && std::fs::symlink_metadata(folder).is_ok_and(|folder| folder.is_dir() && is_roots(&folder, 0o022))
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

/// The text of a list that says who is not to be let in; `None` if there is none. It is a file of this user or of root
/// that no one else may write: the list may lie in a folder that others use too.
pub(crate) fn read_list(path: &Path) -> Result<Option<Zeroizing<String>>, IdentityError> {
    let failed = |cause| IdentityError::File { path: path.to_owned(), cause };
    let file = match OpenOptions::new().read(true).custom_flags(AT_ONCE.bits().cast_signed()).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    // The open file is looked at: the name may stand for another one a moment later.
    check_list(path, &file.metadata().map_err(failed)?)?;
    read_bounded(file).map(Some).map_err(failed)
}

/// Fails if a list is no file, or others than this user and root may have written it.
fn check_list(path: &Path, found: &Metadata) -> Result<(), IdentityError> {
    let shown = path.display();
    let doubtful = |cause: &str, mends: String| {
        Err(IdentityError::DoubtfulList { path: path.to_owned(), cause: cause.to_owned(), mends })
    };
    if !found.is_file() {
        return doubtful("it is no file", format!("copy the authority's over it, after `rm -r {shown}`"));
    }
    if found.uid() != rustix::process::geteuid().as_raw() && found.uid() != ROOT {
        return doubtful("another user owns it", format!("`chown $(id -u) {shown}` as root"));
    }
    if found.mode() & 0o022 != 0 {
        return doubtful("other users may write it", format!("`chmod go-w {shown}`"));
    }
    Ok(())
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

    fn doubt(path: &Path) -> String {
        let error = read_list(path).unwrap_err();
        assert!(matches!(error, IdentityError::DoubtfulList { .. }), "{error}");
        error.to_string()
    }

    #[test]
    fn a_list_that_others_may_write_or_that_is_no_file_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("revoked.pem");
        assert!(read_list(&path).unwrap().is_none());
        std::fs::write(&path, "a list").unwrap();
        for (mode, is_good) in [(0o600, true), (0o644, true), (0o664, false), (0o646, false)] {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            if is_good {
                assert_eq!(read_list(&path).unwrap().unwrap().as_str(), "a list");
            } else {
                assert!(doubt(&path).ends_with(&format!("`chmod go-w {}`", path.display())));
            }
        }
        std::fs::remove_file(&path).unwrap();
        // No one ever writes to it: who opens it as files are opened waits for ever.
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        assert!(doubt(&path).contains("it is no file"));
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(doubt(&path).contains("it is no file"));
        std::fs::remove_dir(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert!(doubt(&path).contains("it is no file"), "a device without an end");
    }

    #[test]
    fn a_list_of_another_user_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("revoked.pem");
        std::fs::write(&path, "a list").unwrap();
        if let Err(error) = std::os::unix::fs::chown(&path, Some(12345), None) {
            println!("SKIP: only root gives files away ({error})");
            return;
        }
        assert!(doubt(&path).contains("another user owns it"));
    }

    /// Sets the mode of a file or folder.
    fn chmod(path: &Path, mode: u32) {
        set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_secret_that_systemd_hands_to_a_service_is_read_there_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("identity.pem");
        create_secret(&path, "text").unwrap();
        // As it is where an entry of a list of access names the service's user.
        chmod(&path, 0o440);
        chmod(folder.path(), 0o550);
        let read = |handed: Option<&Path>| read_secret_of(&path, handed).map(|text| text.to_string());
        assert!(read(None).is_err() && read(Some(Path::new("/run/credentials"))).is_err());
        if !rustix::process::geteuid().is_root() {
            assert!(read(Some(folder.path())).is_err(), "the folder is not root's");
            chmod(folder.path(), 0o700);
            println!("SKIP: only root makes files that are root's");
            return;
        }
        assert_eq!(read(Some(folder.path())).unwrap(), "text");
        for (file, of_folder) in [(0o444, 0o550), (0o460, 0o550), (0o440, 0o570), (0o440, 0o1777)] {
            chmod(&path, file);
            chmod(folder.path(), of_folder);
            assert!(read(Some(folder.path())).is_err(), "{file:o} {of_folder:o}");
        }
        chmod(&path, 0o440);
        chmod(folder.path(), 0o550);
        std::os::unix::fs::chown(folder.path(), Some(12345), None).unwrap();
        assert!(read(Some(folder.path())).is_err(), "another user may put files there");
        std::os::unix::fs::chown(folder.path(), Some(0), None).unwrap();
        std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
        assert!(read(Some(folder.path())).is_err(), "another user may change it");
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
