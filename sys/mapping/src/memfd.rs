//! Files in memory that several processes map.
//!
//! UNSAFETY: creates descriptors and sizes them.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::mapping::MapError;

/// An anonymous file of `bytes` in memory, to be mapped with [`Mapping::shared`](crate::Mapping::shared) here and in
/// other processes.
pub fn create_memfd(name: &CStr, bytes: usize) -> Result<OwnedFd, MapError> {
    // SAFETY: the name is a C string; a new descriptor is owned by nobody else.
    let fd = unsafe {
        let fd = libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 {
            return Err(MapError::last("memfd_create", bytes));
        }
        OwnedFd::from_raw_fd(fd)
    };
    // SAFETY: the descriptor is open.
    if unsafe { libc::ftruncate(fd.as_raw_fd(), (bytes as u64).cast_signed()) } != 0 {
        return Err(MapError::last("ftruncate", bytes));
    }
    Ok(fd)
}
