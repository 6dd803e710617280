//! [`Uffd`]: the owned descriptor and its typed operations.
//!
//! UNSAFETY: opens descriptors and issues ioctls; see each block.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use yonder_intercept::Kept;
use yonder_mapping::{DropMethod, Mapping, drop_method};
use yonder_units::{Narrow as _, PAGE_BYTES};

use crate::raw;

/// Where a descriptor came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// `/dev/userfaultfd`, whose file permissions decide who may use it.
    Device,
    /// The system call, as a privileged user or with `vm.unprivileged_userfaultfd=1`.
    SystemCall,
    /// The system call restricted to faults from user mode, which any user may make.
    UserModeOnly,
}

/// Why there is no userfaultfd. The texts say what mends it.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The kernel was built without it, or it is forbidden in this container.
    #[error(
        "this kernel has no userfaultfd ({0}): use a kernel built with CONFIG_USERFAULTFD, outside a sandbox that filters it"
    )]
    Unsupported(io::Error),
    /// This user may not.
    #[error(
        "this user may not use userfaultfd ({0}): run `sudo setfacl -m u:$USER:rw /dev/userfaultfd` or `sudo sysctl vm.unprivileged_userfaultfd=1`, or start the container with --device /dev/userfaultfd"
    )]
    NotPermitted(io::Error),
    /// The kernel lacks a feature.
    #[error("this kernel's userfaultfd lacks {0}: Linux 5.14 or later is needed")]
    MissingFeature(&'static str),
}

/// An ioctl that failed for a reason that is not part of normal operation.
#[derive(Debug, thiserror::Error)]
#[error("{operation} of {bytes} bytes at {address:#x}: {source}")]
pub struct UffdError {
    pub(crate) operation: &'static str,
    pub(crate) address: usize,
    pub(crate) bytes: usize,
    pub(crate) source: io::Error,
}

/// How an install ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyOutcome {
    /// The page is mapped with the new content.
    Installed,
    /// A page was there already; it is unchanged.
    Exists,
    /// The address space was changing; nothing was done. Try again.
    Again,
    /// The kernel had no memory for the page; nothing was done.
    NoMemory,
}

/// What this machine can do for paging.
#[derive(Debug)]
pub struct Abilities {
    /// Where a userfaultfd with all needed features comes from.
    pub userfaultfd: Result<Source, OpenError>,
    /// Whether scattered pages can be dropped with one call.
    pub vectored_drop: bool,
}

/// Tries what paging needs.
#[must_use]
pub fn probe() -> Abilities {
    Abilities {
        userfaultfd: Uffd::open().map(|uffd| uffd.source),
        vectored_drop: matches!(drop_method(), DropMethod::Vectored(_)),
    }
}

/// How the faults of a descriptor reach whoever handles them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Delivery {
    /// As SIGBUS, in the thread that has the fault. Accesses of the kernel fail.
    #[default]
    Signal,
    /// As messages that somebody reads, while the thread sleeps in the kernel, also one in a system call.
    Messages,
    /// As [`Delivery::Messages`], but accesses of the kernel may fail: any user may have this.
    UserMessages,
}

/// An open userfaultfd with write protection.
#[derive(Debug)]
pub struct Uffd {
    fd: Kept,
    source: Source,
    /// Where the kernel says what it has mapped of this process, if it does.
    pub(crate) pagemap: Option<Kept>,
}

impl Uffd {
    /// Opens a descriptor whose faults are signals from the first source that this user may use.
    pub fn open() -> Result<Self, OpenError> {
        Self::open_for(Delivery::Signal)
    }

    /// As [`Uffd::open`], with faults delivered in this way. Messages of the kernel's own accesses need a source that
    /// an unprivileged user may lack.
    pub fn open_for(delivery: Delivery) -> Result<Self, OpenError> {
        // Each source is tried to the end, and the first refusal is reported of those that a permission mends, if there
        // is one: in a container there may be no device, and a filter in front of the call.
        let mut refusal = None;
        let sources =
            SOURCES.iter().filter(|(source, _)| delivery != Delivery::Messages || *source != Source::UserModeOnly);
        for (source, open) in sources {
            let opened = open().map_err(refused).and_then(|fd| Self::negotiate(fd, *source, delivery));
            match opened {
                Ok(uffd) => return Ok(uffd),
                Err(error @ OpenError::NotPermitted(_)) if !matches!(refusal, Some(OpenError::NotPermitted(_))) => {
                    refusal = Some(error);
                }
                Err(error) => refusal = refusal.or(Some(error)),
            }
        }
        Err(refusal.expect("there is more than one source"))
    }

    /// Where the descriptor came from.
    #[must_use]
    pub fn source(&self) -> Source {
        self.source
    }

    /// Delivers missing-page and write-protection faults of `mapping` from now on.
    pub fn register(&self, mapping: &Mapping) -> Result<(), UffdError> {
        self.register_part(mapping, 0, mapping.len() / PAGE_BYTES)
    }

    /// As [`Uffd::register`], for `pages` pages from `offset` of `mapping` on.
    pub(crate) fn register_part(&self, mapping: &Mapping, offset: u64, pages: usize) -> Result<(), UffdError> {
        let (address, bytes) = (range_address(mapping, offset, pages), pages * PAGE_BYTES);
        let range = raw::Range { start: address as u64, len: bytes as u64 };
        let mut request = raw::Register { range, mode: raw::REGISTER_MODE_MISSING | raw::REGISTER_MODE_WP, ioctls: 0 };
        self.ioctl(raw::IOCTL_REGISTER, &mut request).map_err(|source| UffdError {
            operation: "UFFDIO_REGISTER",
            address,
            bytes,
            source,
        })
    }

    /// Maps the page at `offset` of `region` with the content of the page at `source_offset` of `source`. Wakes nobody:
    /// in SIGBUS mode nobody sleeps in the kernel.
    #[inline]
    pub fn copy_page(
        &self,
        region: &Mapping,
        offset: u64,
        source: &Mapping,
        source_offset: u64,
    ) -> Result<CopyOutcome, UffdError> {
        let dst = page_address(region, offset);
        let mut request = raw::Copy {
            dst: dst as u64,
            src: page_address(source, source_offset) as u64,
            len: PAGE_BYTES as u64,
            mode: raw::COPY_MODE_DONTWAKE,
            copy: 0,
        };
        let result = self.ioctl(raw::IOCTL_COPY, &mut request);
        outcome(result, request.copy).map_err(|source| UffdError {
            operation: "UFFDIO_COPY",
            address: dst,
            bytes: PAGE_BYTES,
            source,
        })
    }

    /// Maps `pages` pages from `offset` of `region` on with the content of those from `source_offset` of `source` on,
    /// with one call if the kernel does not stop in between. Returns how many it has mapped, from the first on, and how
    /// the next one ended if it is not all of them. Wakes nobody.
    pub fn copy_pages(
        &self,
        region: &Mapping,
        offset: u64,
        source: &Mapping,
        source_offset: u64,
        pages: usize,
    ) -> Result<(usize, CopyOutcome), UffdError> {
        let (dst, bytes) = (range_address(region, offset, pages), pages * PAGE_BYTES);
        let mut request = raw::Copy {
            dst: dst as u64,
            src: range_address(source, source_offset, pages) as u64,
            len: bytes as u64,
            mode: raw::COPY_MODE_DONTWAKE,
            copy: 0,
        };
        let Err(error) = self.ioctl(raw::IOCTL_COPY, &mut request) else { return Ok((pages, CopyOutcome::Installed)) };
        if error.raw_os_error() == Some(libc::ENOENT) && pages > 1 {
            // A change of protection has cut the region into several mappings of the kernel, and one call is for one of
            // them.
            let first = self.copy_page(region, offset, source, source_offset)?;
            return Ok(if first == CopyOutcome::Installed { (1, CopyOutcome::Again) } else { (0, first) });
        }
        // A call that stopped in between says how far it came, and EAGAIN whatever stopped it.
        let mapped = usize::try_from(request.copy).unwrap_or(0) / PAGE_BYTES;
        let next = outcome(Err(error), request.copy);
        let failed = |source| UffdError { operation: "UFFDIO_COPY", address: dst, bytes, source };
        next.map(|next| (mapped, next)).map_err(failed)
    }

    /// Maps the page at `offset` of `region` as zeros. Wakes nobody.
    #[inline]
    pub fn zero_page(&self, region: &Mapping, offset: u64) -> Result<CopyOutcome, UffdError> {
        self.map_zeros(region, offset, raw::ZEROPAGE_MODE_DONTWAKE)
    }

    /// As [`Uffd::zero_page`], and wakes the threads that sleep in the kernel on a fault of the page if it installs it.
    pub fn zero_page_and_wake(&self, region: &Mapping, offset: u64) -> Result<CopyOutcome, UffdError> {
        self.map_zeros(region, offset, 0)
    }

    #[inline]
    fn map_zeros(&self, region: &Mapping, offset: u64, mode: u64) -> Result<CopyOutcome, UffdError> {
        let address = page_address(region, offset);
        let range = raw::Range { start: address as u64, len: PAGE_BYTES as u64 };
        let mut request = raw::Zeropage { range, mode, zeropage: 0 };
        let result = self.ioctl(raw::IOCTL_ZEROPAGE, &mut request);
        outcome(result, request.zeropage).map_err(|source| UffdError {
            operation: "UFFDIO_ZEROPAGE",
            address,
            bytes: PAGE_BYTES,
            source,
        })
    }

    /// Wakes threads that sleep in the kernel on a fault of `pages` from `offset` of `region`: those whose faults are
    /// not delivered as SIGBUS.
    pub fn wake(&self, region: &Mapping, offset: u64, pages: usize) -> Result<(), UffdError> {
        let (address, bytes) = (range_address(region, offset, pages), pages * PAGE_BYTES);
        let mut request = raw::Range { start: address as u64, len: bytes as u64 };
        self.ioctl(raw::IOCTL_WAKE, &mut request).map_err(|source| UffdError {
            operation: "UFFDIO_WAKE",
            address,
            bytes,
            source,
        })
    }

    /// The address of the next fault whose thread waits for it, or `None` if there is none for `patience_ms`. For
    /// descriptors whose faults are messages; several threads may ask.
    pub fn next_fault(&self, patience_ms: i32) -> io::Result<Option<usize>> {
        let mut ready = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd is passed, which lives as long as the call.
        if unsafe { libc::poll(&raw mut ready, 1, patience_ms) } <= 0 {
            return Ok(None);
        }
        let mut message = raw::Message { event: 0, reserved: [0; 7], flags: 0, address: 0, thread: 0 };
        let bytes = size_of::<raw::Message>();
        // SAFETY: the structure is as long as the call is told, and any bytes are a valid one.
        let read = unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut message).cast(), bytes) };
        if read < 0 {
            let error = io::Error::last_os_error();
            // Another thread was first.
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
        }
        let is_fault = read.cast_unsigned() == bytes && message.event == raw::EVENT_PAGEFAULT;
        Ok(is_fault.then_some(message.address.narrow_usize()))
    }

    fn negotiate(fd: OwnedFd, source: Source, delivery: Delivery) -> Result<Self, OpenError> {
        let as_signals = if delivery == Delivery::Signal { raw::FEATURE_SIGBUS } else { 0 };
        let features = as_signals | raw::FEATURE_PAGEFAULT_FLAG_WP;
        let mut api = raw::Api { api: raw::API_VERSION, features, ioctls: 0 };
        let uffd = Self { fd: Kept::new(fd), source, pagemap: crate::lending::open_pagemap() };
        // The kernel answers EINVAL when it lacks a feature that was asked for.
        uffd.ioctl(raw::IOCTL_API, &mut api)
            .map_err(|_| OpenError::MissingFeature("SIGBUS delivery or write protection"))?;
        if api.features & features == features {
            Ok(uffd)
        } else {
            Err(OpenError::MissingFeature("SIGBUS delivery or write protection"))
        }
    }

    pub(crate) fn ioctl<T>(&self, request: u64, argument: &mut T) -> io::Result<()> {
        // SAFETY: every caller passes the structure that belongs to `request`, filled with addresses inside mappings
        // that it borrows, so the kernel reads and writes only memory that is owned.
        let result = unsafe { libc::ioctl(self.fd.as_raw_fd(), request as _, std::ptr::from_mut(argument)) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

type Open = fn() -> io::Result<OwnedFd>;

/// The sources, most permissive first.
const SOURCES: [(Source, Open); 3] = [
    (Source::Device, open_device),
    (Source::SystemCall, || open_call(0)),
    (Source::UserModeOnly, || open_call(raw::USER_MODE_ONLY)),
];

fn refused(error: io::Error) -> OpenError {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => OpenError::NotPermitted(error),
        _ => OpenError::Unsupported(error),
    }
}

fn open_device() -> io::Result<OwnedFd> {
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/userfaultfd")?;
    // SAFETY: the request takes open flags by value.
    let fd = unsafe { libc::ioctl(device.as_raw_fd(), raw::IOCTL_NEW as _, libc::O_CLOEXEC | libc::O_NONBLOCK) };
    owned(fd)
}

#[expect(clippy::cast_possible_truncation, reason = "a descriptor, or -1")]
fn open_call(flags: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: the call takes flags by value.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK | flags) };
    owned(fd as libc::c_int)
}

fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Reads the answer of a copy or zero-page request. `result_field` is signed: bytes done, or a negative errno.
fn outcome(result: io::Result<()>, result_field: i64) -> io::Result<CopyOutcome> {
    let Err(error) = result else {
        assert!(
            result_field == const { (PAGE_BYTES as u64).cast_signed() },
            "the kernel installed {result_field} bytes of a page and called it success"
        );
        return Ok(CopyOutcome::Installed);
    };
    match error.raw_os_error() {
        Some(libc::EEXIST) => Ok(CopyOutcome::Exists),
        Some(libc::EAGAIN) => Ok(CopyOutcome::Again),
        Some(libc::ENOMEM) => Ok(CopyOutcome::NoMemory),
        _ => Err(error),
    }
}

fn page_address(mapping: &Mapping, offset: u64) -> usize {
    range_address(mapping, offset, 1)
}

pub(crate) fn range_address(mapping: &Mapping, offset: u64, pages: usize) -> usize {
    let end = offset + (pages * PAGE_BYTES) as u64;
    assert!(offset.is_multiple_of(PAGE_BYTES as u64) && end <= mapping.len() as u64, "{pages} pages at {offset}");
    mapping.address() + offset.narrow_usize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open() -> Option<Uffd> {
        Uffd::open().inspect_err(|error| println!("SKIP: {error}")).ok()
    }

    #[test]
    fn copy_zero_and_exists() {
        let Some(uffd) = open() else { return };
        let (region, source) = (Mapping::region(4 * PAGE_BYTES).unwrap(), Mapping::anonymous(PAGE_BYTES).unwrap());
        uffd.register(&region).unwrap();
        source.write(0, b"content");
        let page = PAGE_BYTES as u64;
        assert_eq!(uffd.copy_page(&region, page, &source, 0).unwrap(), CopyOutcome::Installed);
        assert_eq!(uffd.copy_page(&region, page, &source, 0).unwrap(), CopyOutcome::Exists);
        assert_eq!(uffd.zero_page(&region, page).unwrap(), CopyOutcome::Exists);
        assert_eq!(uffd.zero_page(&region, 2 * page).unwrap(), CopyOutcome::Installed);
        let mut back = [0; 7];
        region.read(page, &mut back);
        assert_eq!(&back, b"content");
        region.read(2 * page, &mut back);
        assert_eq!(back, [0; 7]);
        uffd.write_protect(&region, page, 2, &mut |_| unreachable!()).unwrap();
        uffd.unprotect(&region, page, 2).unwrap();
        uffd.wake(&region, page, 2).unwrap();
        region.write(page, b"changed");
    }

    #[test]
    fn a_run_is_mapped_up_to_what_is_there() {
        let Some(uffd) = open() else { return };
        let (region, source) = (Mapping::region(8 * PAGE_BYTES).unwrap(), Mapping::anonymous(8 * PAGE_BYTES).unwrap());
        uffd.register(&region).unwrap();
        let page = PAGE_BYTES as u64;
        (0..8).for_each(|number| source.write(number * page, &[number as u8 + 1]));
        assert_eq!(uffd.copy_page(&region, 6 * page, &source, 0).unwrap(), CopyOutcome::Installed);
        let (mapped, next) = uffd.copy_pages(&region, page, &source, 2 * page, 6).unwrap();
        assert_eq!(mapped, 5);
        assert!(matches!(next, CopyOutcome::Again | CopyOutcome::Exists), "{next:?}");
        assert_eq!(uffd.copy_pages(&region, 7 * page, &source, 0, 1).unwrap(), (1, CopyOutcome::Installed));
        assert_eq!(uffd.copy_pages(&region, 6 * page, &source, 0, 1).unwrap(), (0, CopyOutcome::Exists));
        for (number, expected) in [(1, 3), (5, 7), (6, 1), (7, 1)] {
            let mut byte = [0];
            region.read(number * page, &mut byte);
            assert_eq!(byte, [expected], "page {number}");
        }
    }

    #[test]
    fn a_thread_that_faults_sleeps_until_it_is_woken() {
        let Ok(uffd) = Uffd::open_for(Delivery::Messages).inspect_err(|error| println!("SKIP: {error}")) else {
            return;
        };
        let (region, source) = (Mapping::region(4 * PAGE_BYTES).unwrap(), Mapping::anonymous(PAGE_BYTES).unwrap());
        uffd.register(&region).unwrap();
        source.write(0, b"content");
        assert_eq!(uffd.next_fault(0).unwrap(), None);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut back = [0; 7];
                region.read(PAGE_BYTES as u64, &mut back);
                back
            });
            let address = std::iter::repeat_with(|| uffd.next_fault(1000).unwrap()).flatten().next();
            assert_eq!(address, Some(region.address() + PAGE_BYTES));
            assert_eq!(uffd.copy_page(&region, PAGE_BYTES as u64, &source, 0).unwrap(), CopyOutcome::Installed);
            uffd.wake(&region, PAGE_BYTES as u64, 1).unwrap();
            assert_eq!(&reader.join().unwrap(), b"content");
        });
    }

    #[test]
    fn whoever_may_have_signals_may_have_messages_of_its_own_faults() {
        let Some(_) = open() else { return };
        let uffd = Uffd::open_for(Delivery::UserMessages).unwrap();
        let (region, page) = (Mapping::region(2 * PAGE_BYTES).unwrap(), PAGE_BYTES as u64);
        uffd.register(&region).unwrap();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| region.try_read_u64(page));
            let address = std::iter::repeat_with(|| uffd.next_fault(1000).unwrap()).flatten().next();
            assert_eq!(address, Some(region.address() + PAGE_BYTES));
            assert_eq!(uffd.zero_page_and_wake(&region, page).unwrap(), CopyOutcome::Installed);
            assert_eq!(reader.join().unwrap(), Ok(0));
        });
        assert_eq!(uffd.zero_page_and_wake(&region, page).unwrap(), CopyOutcome::Exists);
    }

    #[test]
    fn errno_is_kept() {
        let Some(uffd) = open() else { return };
        let (unregistered, source) = (Mapping::region(PAGE_BYTES).unwrap(), Mapping::anonymous(PAGE_BYTES).unwrap());
        let error = uffd.copy_page(&unregistered, 0, &source, 0).unwrap_err();
        assert_eq!(error.source.raw_os_error(), Some(libc::ENOENT));
    }
}
