//! The kernel's userfaultfd structures and request numbers (`linux/userfaultfd.h`).

/// `UFFD_API`.
pub(crate) const API_VERSION: u64 = 0xAA;

pub(crate) const FEATURE_PAGEFAULT_FLAG_WP: u64 = 1 << 0;
pub(crate) const FEATURE_SIGBUS: u64 = 1 << 7;

pub(crate) const REGISTER_MODE_MISSING: u64 = 1 << 0;
pub(crate) const REGISTER_MODE_WP: u64 = 1 << 1;

pub(crate) const COPY_MODE_DONTWAKE: u64 = 1 << 0;
pub(crate) const ZEROPAGE_MODE_DONTWAKE: u64 = 1 << 0;
pub(crate) const WRITEPROTECT_MODE_WP: u64 = 1 << 0;

/// `UFFD_USER_MODE_ONLY`: unprivileged users may have a descriptor whose kernel-mode faults are not handled, which is
/// what SIGBUS mode means anyway.
pub(crate) const USER_MODE_ONLY: libc::c_int = 1;

#[repr(C)]
pub(crate) struct Api {
    pub(crate) api: u64,
    pub(crate) features: u64,
    pub(crate) ioctls: u64,
}

#[repr(C)]
pub(crate) struct Range {
    pub(crate) start: u64,
    pub(crate) len: u64,
}

#[repr(C)]
pub(crate) struct Register {
    pub(crate) range: Range,
    pub(crate) mode: u64,
    pub(crate) ioctls: u64,
}

#[repr(C)]
pub(crate) struct Copy {
    pub(crate) dst: u64,
    pub(crate) src: u64,
    pub(crate) len: u64,
    pub(crate) mode: u64,
    /// Bytes copied, or a negative errno.
    pub(crate) copy: i64,
}

#[repr(C)]
pub(crate) struct Zeropage {
    pub(crate) range: Range,
    pub(crate) mode: u64,
    /// Bytes mapped, or a negative errno.
    pub(crate) zeropage: i64,
}

#[repr(C)]
pub(crate) struct Writeprotect {
    pub(crate) range: Range,
    pub(crate) mode: u64,
}

/// `struct uffd_msg` of a page fault.
#[repr(C)]
pub(crate) struct Message {
    pub(crate) event: u8,
    pub(crate) reserved: [u8; 7],
    pub(crate) flags: u64,
    pub(crate) address: u64,
    pub(crate) thread: u64,
}

/// `UFFD_EVENT_PAGEFAULT`.
pub(crate) const EVENT_PAGEFAULT: u8 = 0x12;

const _: () = assert!(size_of::<Message>() == 32);
const _: () = assert!(size_of::<Api>() == 24);
const _: () = assert!(size_of::<Range>() == 16);
const _: () = assert!(size_of::<Register>() == 32);
const _: () = assert!(size_of::<Copy>() == 40);
const _: () = assert!(std::mem::offset_of!(Copy, copy) == 32);
const _: () = assert!(size_of::<Zeropage>() == 32);
const _: () = assert!(size_of::<Writeprotect>() == 24);

pub(crate) const IOCTL_API: u64 = request(READ | WRITE, 0x3F, size_of::<Api>());
pub(crate) const IOCTL_REGISTER: u64 = request(READ | WRITE, 0x00, size_of::<Register>());
pub(crate) const IOCTL_UNREGISTER: u64 = request(READ, 0x01, size_of::<Range>());
pub(crate) const IOCTL_WAKE: u64 = request(READ, 0x02, size_of::<Range>());
pub(crate) const IOCTL_COPY: u64 = request(READ | WRITE, 0x03, size_of::<Copy>());
pub(crate) const IOCTL_ZEROPAGE: u64 = request(READ | WRITE, 0x04, size_of::<Zeropage>());
pub(crate) const IOCTL_WRITEPROTECT: u64 = request(READ | WRITE, 0x06, size_of::<Writeprotect>());
/// `USERFAULTFD_IOC_NEW` of `/dev/userfaultfd`.
pub(crate) const IOCTL_NEW: u64 = request(0, 0x00, 0);

const WRITE: u64 = 1;
const READ: u64 = 2;

/// The generic Linux encoding of an ioctl of type 0xAA.
const fn request(direction: u64, number: u64, size: usize) -> u64 {
    direction << 30 | (size as u64) << 16 | 0xAA << 8 | number
}

const _: () = assert!(IOCTL_COPY == 0xC028_AA03);
const _: () = assert!(IOCTL_WAKE == 0x8010_AA02);
