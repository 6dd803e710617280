//! Which credential a process shows: what its user has typed, or else what `YONDER_IDENTITY` or `YONDER_KEY` names; and
//! how its children learn of it.

use std::io;
use std::path::{Path, PathBuf, absolute};
use std::sync::{Arc, OnceLock};

use crate::IdentityError;
use crate::credential::Credential;

/// Variables of the environment that name a credential's file, where no flag does.
const IDENTITY_VARIABLE: &str = "YONDER_IDENTITY";
const KEY_VARIABLE: &str = "YONDER_KEY";

/// What was typed for this process. Written once, by the program, before anything connects.
static OF_PROCESS: OnceLock<Arc<Credential>> = OnceLock::new();

impl Credential {
    /// The credential that a user has named by a flag, or else by `YONDER_IDENTITY` or `YONDER_KEY`. Both are read the
    /// same way: the file says which it is.
    pub fn of_user(identity: Option<&Path>, key: Option<&Path>) -> Result<Option<Arc<Self>>, IdentityError> {
        let path = match (identity, key) {
            (Some(_), Some(_)) => return Err(IdentityError::Both { first: "--identity", second: "--key" }),
            (Some(path), None) | (None, Some(path)) => Some(path.to_owned()),
            (None, None) => match (variable(IDENTITY_VARIABLE), variable(KEY_VARIABLE)) {
                (Some(_), Some(_)) => {
                    return Err(IdentityError::Both { first: IDENTITY_VARIABLE, second: KEY_VARIABLE });
                }
                (identity, key) => identity.or(key),
            },
        };
        path.map(|path| Self::load(&path).map(Arc::new)).transpose()
    }

    /// What libraries show that were handed no credential: the one of [`Credential::set_of_process`], or else what the
    /// environment names, if it does.
    pub fn of_process() -> Result<Option<Arc<Self>>, IdentityError> {
        match OF_PROCESS.get() {
            Some(typed) => Ok(Some(Arc::clone(typed))),
            None => Self::of_user(None, None),
        }
    }

    /// Sets [`Credential::of_process`] for good. It is for a program that takes flags, which calls it once and before
    /// anything is opened: who has asked before goes on with the answer to that.
    ///
    /// # Panics
    /// If it is called again.
    pub fn set_of_process(credential: Arc<Self>) {
        assert!(OF_PROCESS.set(credential).is_ok(), "a process has one credential");
    }
}

/// What the environment of a child must have, so that it finds what [`Credential::of_user`] does with the same flags:
/// variables with their paths, or without one those that it must not have. The paths are from the root on, since a
/// child may go to another folder. An error if this process's own folder is gone.
pub fn child_variables(
    identity: Option<&Path>,
    key: Option<&Path>,
) -> io::Result<[(&'static str, Option<PathBuf>); 2]> {
    let is_typed = identity.is_some() || key.is_some();
    let of = |name, typed: Option<&Path>| {
        let path = if is_typed { typed.map(Path::to_owned) } else { variable(name) };
        path.map(absolute).transpose().map(|path| (name, path))
    };
    Ok([of(IDENTITY_VARIABLE, identity)?, of(KEY_VARIABLE, key)?])
}

/// The path in a variable of the environment; an empty one is none.
fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::SharedKey;

    #[test]
    fn a_child_has_what_was_typed_and_nothing_else() {
        let here = std::env::current_dir().unwrap();
        let typed = Path::new("cluster.key");
        let named = Some(here.join(typed));
        assert_eq!(
            child_variables(None, Some(typed)).unwrap(),
            [("YONDER_IDENTITY", None), ("YONDER_KEY", named.clone())]
        );
        assert_eq!(child_variables(Some(typed), None).unwrap(), [("YONDER_IDENTITY", named), ("YONDER_KEY", None)]);
        let whole = Path::new("/etc/yonder/app.pem");
        assert_eq!(child_variables(Some(whole), None).unwrap()[0].1.as_deref(), Some(whole));
    }

    #[test]
    fn a_process_shows_what_was_set() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        SharedKey::generate().unwrap().write(&path).unwrap();
        Credential::set_of_process(Arc::new(Credential::load(&path).unwrap()));
        assert_eq!(Credential::of_process().unwrap().unwrap().path(), path);
    }
}
