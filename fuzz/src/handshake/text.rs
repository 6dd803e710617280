//! Files that say who one is, and what a tenant may have, as it is typed and as certificates carry it.
//!
//! A file is read or refused in one line; what was read can serve, and is of one role or of all. Limits that are
//! understood are written as what means the same.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;

use rustix::fs::{MemfdFlags, Mode, fchmod, memfd_create};
use xxhash_rust::xxh3::xxh3_64;
use yonder_board::TenantLimits;
use yonder_identity::{Credential, IdentityError, NAME_BYTES_MAX, Role, ServerEnd, check_name};

use crate::Trail;

/// A file that is nowhere but in this process, which may read it by a name as long as this is open.
pub(super) struct Unnamed(File);

impl Unnamed {
    pub(super) fn new(text: &[u8]) -> Self {
        let file = memfd_create("yonder-fuzz", MemfdFlags::CLOEXEC).expect("the kernel has memory");
        fchmod(&file, Mode::RUSR | Mode::WUSR).expect("the file is ours");
        let mut file = File::from(file);
        file.write_all(text).expect("the kernel has memory");
        Self(file)
    }

    pub(super) fn load(&self) -> Result<Credential, IdentityError> {
        Credential::load(&PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd())))
    }
}

pub(super) fn check_credential(bytes: &[u8], trail: &mut Trail) {
    let file = Unnamed::new(bytes);
    let credential = match file.load() {
        Ok(credential) => credential,
        Err(error) => {
            let told = error.to_string();
            assert!(is_one_line(&told), "{told:?}");
            // What is wrong with it, without its name.
            let cause = told.split_once('(').map_or("", |(_, cause)| cause);
            return trail.note([30, xxh3_64(cause.as_bytes()) % 64, 0]);
        }
    };
    let itself = credential.itself();
    assert!(is_one_line(&itself.to_string()), "{itself:?}");
    assert_eq!(itself.name().is_some(), itself.role().is_some());
    for role in Role::ALL {
        assert_eq!(credential.check_role(role).is_ok(), itself.has(role));
    }
    let end = ServerEnd::new(&credential).expect("what was read can serve");
    assert!(end.peer().is_none(), "nothing was said yet");
    let role = itself.role().map_or(0, |own| 1 + Role::ALL.iter().position(|role| *role == own).unwrap_or(0) as u64);
    trail.note([31, role, itself.limits().is_some().into()]);
}

pub(super) fn check_typed(bytes: &[u8], trail: &mut Trail) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    check_limits(text, trail);
    match check_name(text) {
        Ok(()) => {
            assert!((1..=NAME_BYTES_MAX).contains(&text.len()) && is_one_line(text) && !text.contains(['.', ' ']));
            trail.note([33, 0, 0]);
        }
        Err(error) => assert!(is_one_line(&error.to_string()), "{error}"),
    }
    if let Ok(role) = text.parse::<Role>() {
        assert_eq!(role.as_str(), text);
        trail.note([34, 0, 0]);
    }
}

fn check_limits(text: &str, trail: &mut Trail) {
    let Ok(limits) = text.parse::<TenantLimits>() else { return trail.note([32, 0, 0]) };
    let written = limits.to_string();
    let again: TenantLimits = written.parse().expect("what is written can be typed");
    // Work is written in whole microseconds, and there is some if there was.
    assert_eq!(TenantLimits { work: limits.work, ..again }, limits);
    assert_eq!(again.work.is_some(), limits.work.is_some());
    assert_eq!(again.to_string(), written);
    assert_eq!(limits.or(again), limits);
    assert_eq!(TenantLimits::default().or(limits), limits);
    let TenantLimits { spaces, reserved_bytes, memory_bytes, requests, bytes, work, connections } = limits;
    let counts = [spaces, requests, connections].map(|count| count.map(u64::from));
    assert!(counts.into_iter().chain([reserved_bytes, memory_bytes, bytes]).all(|limit| limit != Some(0)));
    assert!(work.is_none_or(|work| !work.is_zero()));
    let has = written.split(',').filter(|part| !part.is_empty()).count() as u64;
    trail.note([32, 1 + has, work.is_some().into()]);
}

/// Whether a terminal or a log has one line of it.
fn is_one_line(text: &str) -> bool {
    !text.contains(char::is_control)
}
