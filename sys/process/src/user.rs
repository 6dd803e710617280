//! [`User`]: whose a process becomes that root has started, for good.
//!
//! Key types: [`User`], [`UserError`]. Neighbours: `sandbox`, which comes after it.
//!
//! Invariant: after [`User::become_for_good`] has returned without an error, the process has no rights of root, and
//! cannot get them back.
//!
//! UNSAFETY: asks the C library for a user by name.

use std::ffi::{CString, c_char};
use std::io;
use std::mem::MaybeUninit;
use std::path::Path;

use rustix::fs::AtFlags;
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};

/// Bytes that the texts of one user may have: directories of users on networks have long ones.
const ENTRY_BYTES_MAX: usize = 1 << 20;
const ENTRY_BYTES_FIRST: usize = 4 << 10;
/// Capabilities that there may be in this or a later kernel.
const CAPABILITIES_MAX: u32 = 64;

/// Why a process cannot become a user's. One line each, with what to type.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// The system does not know the name.
    #[error("there is no user '{0}': type --user with one that 'getent passwd' shows")]
    Unknown(String),
    /// The name is one of root's.
    #[error("'{0}' has all rights of root: type --user with one that has not")]
    IsRoot(String),
    /// The process may not become another's.
    #[error("only root can become '{0}': start as root, or leave --user out")]
    NotRoot(String),
    /// The kernel refused.
    #[error("this process cannot become '{name}': {what}: {cause}")]
    Refused {
        /// The user.
        name: String,
        /// What was refused.
        what: &'static str,
        /// What the kernel said.
        cause: io::Error,
    },
    /// The kernel took everything, and the process still has rights of root.
    #[error("this process became '{0}' and still has rights of root: use a kernel that takes them away")]
    StillRoot(String),
}

/// A user of this machine who is not root.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct User {
    name: String,
    uid: u32,
    gid: u32,
}

impl User {
    /// The user whose name is `name`.
    ///
    /// # Errors
    /// If there is none, if it is root, or if this process is not root's and so cannot become the user's.
    pub fn named(name: &str) -> Result<Self, UserError> {
        let found = look_up(name).map_err(|cause| refused(name, "looking it up", cause))?;
        let (uid, gid) = found.ok_or_else(|| UserError::Unknown(name.to_owned()))?;
        if uid == 0 {
            return Err(UserError::IsRoot(name.to_owned()));
        }
        if !rustix::process::geteuid().is_root() {
            return Err(UserError::NotRoot(name.to_owned()));
        }
        Ok(Self { name: name.to_owned(), uid, gid })
    }

    /// What the system calls the user.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Gives a file, or a socket, to the user. A link is not followed: it is given itself.
    pub fn give(&self, path: &Path) -> io::Result<()> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        Ok(rustix::fs::chownat(rustix::fs::CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Does something as the user, such as reading what the user alone may read, and is root again.
    ///
    /// # Errors
    /// If the kernel refuses. The process should end: it may have lost rights.
    ///
    /// # Panics
    /// If the process has other threads, as for [`User::become_for_good`].
    pub fn act<T>(&self, act: impl FnOnce() -> T) -> Result<T, UserError> {
        assert!(crate::is_single_threaded(), "the process has threads, which would stay root's");
        let refused = |what| move |cause: Errno| refused(&self.name, what, cause.into());
        let groups = rustix::process::getgroups().map_err(refused("getgroups"))?;
        let (own_uid, own_gid) = (rustix::process::geteuid(), rustix::process::getegid());
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        rustix::thread::set_thread_groups(&[gid]).map_err(refused("setgroups"))?;
        rustix::thread::set_thread_res_gid(None, gid, None).map_err(refused("setresgid"))?;
        rustix::thread::set_thread_res_uid(None, uid, None).map_err(refused("setresuid"))?;
        let done = act();
        rustix::thread::set_thread_res_uid(None, own_uid, None).map_err(refused("setresuid"))?;
        rustix::thread::set_thread_res_gid(None, own_gid, None).map_err(refused("setresgid"))?;
        rustix::thread::set_thread_groups(&groups).map_err(refused("setgroups"))?;
        Ok(done)
    }

    /// Makes the process this user's, with the user's first group and no other, without capabilities, and so that no
    /// program that it executes has more. What it has opened stays open.
    ///
    /// # Errors
    /// If the kernel refuses, or the process can still become root's. It may have lost some rights then, and should
    /// end.
    ///
    /// # Panics
    /// If the process has other threads: each has its own user in the kernel.
    pub fn become_for_good(&self) -> Result<(), UserError> {
        assert!(crate::is_single_threaded(), "the process has threads, which would stay root's");
        let refused = |what| move |cause: Errno| refused(&self.name, what, cause.into());
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        // A container may have taken away the right to do so, and most capabilities with it.
        drop_bounding_set();
        rustix::thread::set_thread_groups(&[gid]).map_err(refused("setgroups"))?;
        rustix::thread::set_thread_res_gid(gid, gid, gid).map_err(refused("setresgid"))?;
        rustix::thread::set_thread_res_uid(uid, uid, uid).map_err(refused("setresuid"))?;
        // They are gone already, unless bits of this process say that they are to stay.
        let none = CapabilitySet::empty();
        let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
        rustix::thread::set_capabilities(None, none).map_err(refused("capset"))?;
        rustix::thread::set_no_new_privs(true).map_err(refused("PR_SET_NO_NEW_PRIVS"))?;
        if self.is_had_for_good() { Ok(()) } else { Err(UserError::StillRoot(self.name.clone())) }
    }

    /// Whether the process is this user's alone, and cannot become root's again. It tries.
    fn is_had_for_good(&self) -> bool {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        let is_user = [rustix::process::getuid(), rustix::process::geteuid()] == [uid; 2]
            && [rustix::process::getgid(), rustix::process::getegid()] == [gid; 2]
            && rustix::process::getgroups().is_ok_and(|groups| groups == [gid]);
        let is_bare = rustix::thread::capabilities(None)
            .is_ok_and(|sets| (sets.effective | sets.permitted | sets.inheritable).is_empty());
        let becomes_root = rustix::thread::set_thread_uid(Uid::ROOT).is_ok()
            || rustix::thread::set_thread_res_uid(None, Uid::ROOT, None).is_ok()
            || (self.gid != 0 && rustix::thread::set_thread_gid(Gid::ROOT).is_ok())
            || rustix::thread::set_thread_groups(&[]).is_ok();
        is_user && is_bare && !becomes_root
    }
}

fn refused(name: &str, what: &'static str, cause: io::Error) -> UserError {
    UserError::Refused { name: name.to_owned(), what, cause }
}

/// Takes every capability away from programs that this process, or a child of it, may execute.
fn drop_bounding_set() {
    for number in 0..CAPABILITIES_MAX {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        if rustix::thread::remove_capability_from_bounding_set(capability).is_err() {
            // Not allowed, or no such capability, nor any after it.
            return;
        }
    }
}

/// Numbers of a user and the user's first group.
fn look_up(name: &str) -> io::Result<Option<(u32, u32)>> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    let mut texts: Vec<c_char> = vec![0; ENTRY_BYTES_FIRST];
    loop {
        let mut entry = MaybeUninit::<libc::passwd>::uninit();
        let mut found = std::ptr::null_mut();
        // SAFETY: the name is a C string, the entry and the texts have the sizes that are said, and all live until the
        // call returns.
        let error = unsafe {
            libc::getpwnam_r(name.as_ptr(), entry.as_mut_ptr(), texts.as_mut_ptr(), texts.len(), &raw mut found)
        };
        match error {
            0 if found.is_null() => return Ok(None),
            // SAFETY: the C library has filled in the entry that it says it has found.
            0 => return Ok(Some(unsafe { ((*found).pw_uid, (*found).pw_gid) })),
            libc::ERANGE if texts.len() < ENTRY_BYTES_MAX => texts.resize(2 * texts.len(), 0),
            // What the C library may say of a name that is nowhere.
            libc::ENOENT | libc::ESRCH => return Ok(None),
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_no_users_are_one_line() {
        for name in ["no-such-user-here", "", "a\0b"] {
            let said = User::named(name).unwrap_err().to_string();
            assert!(said.starts_with("there is no user '") && said.contains("type --user"), "{said}");
            assert_eq!(said.lines().count(), 1);
        }
    }

    #[test]
    fn root_is_no_user_to_become() {
        let said = User::named("root").unwrap_err().to_string();
        assert!(said.contains("all rights of root"), "{said}");
    }
}
