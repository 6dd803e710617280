//! Sockets of light threads: `yonder_socket` of `yonder_threads.h`.
//!
//! The kernel does not fetch: what is in far memory is passed to it through a buffer on the caller's stack, and the
//! copies wait for pages as any touch does.
//!
//! UNSAFETY: it exports functions that read C's pointers, and copies between far memory and buffers.

use std::ffi::{c_char, c_int, c_void};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use yonder::threads::net::{TcpListener, TcpStream};

use crate::arguments::{Out, bytes, bytes_mut, check_range, text};
use crate::failure::{Failure, answer};
use crate::handle;
use crate::memory::is_far;

/// Bytes of a transfer by way of the stack.
const CHUNK: usize = 8192;
/// Most bytes of one transfer.
const BYTES_MAX: usize = isize::MAX as usize;

/// `yonder_socket`.
pub enum YonderSocket {
    /// One that accepts connections.
    Listener(TcpListener),
    /// A connection.
    Stream(TcpStream),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let errno = error.raw_os_error().unwrap_or(match error.kind() {
            ErrorKind::TimedOut => libc::ETIMEDOUT,
            ErrorKind::InvalidInput => libc::EINVAL,
            // Names that have no address.
            _ => libc::EHOSTUNREACH,
        });
        Self::new(errno, error.to_string())
    }
}

impl YonderSocket {
    fn stream(&self) -> Result<&TcpStream, Failure> {
        match self {
            Self::Stream(stream) => Ok(stream),
            Self::Listener(_) => Err(Failure::new(libc::ENOTCONN, "the socket listens: accept a connection first")),
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            Self::Listener(listener) => listener.as_fd(),
            Self::Stream(stream) => stream.as_fd(),
        }
    }
}

/// A connection that sends small messages at once, if it could do otherwise.
fn prompt(stream: TcpStream) -> YonderSocket {
    let _ = stream.set_nodelay(true);
    YonderSocket::Stream(stream)
}

/// Whether a descriptor's socket listens, or else is connected; an error if it is neither.
fn listens(descriptor: BorrowedFd<'_>) -> Result<bool, Failure> {
    let option = |name: c_int| {
        let (mut value, mut bytes) = (0, size_of::<c_int>() as libc::socklen_t);
        // SAFETY: the kernel writes one number, for which there is room.
        let done = unsafe {
            libc::getsockopt(
                descriptor.as_raw_fd(),
                libc::SOL_SOCKET,
                name,
                (&raw mut value).cast::<c_void>(),
                &raw mut bytes,
            )
        };
        (done == 0).then_some(value).ok_or_else(io::Error::last_os_error)
    };
    let unfit = |what: &str| Err(Failure::new(libc::EPROTOTYPE, format!("the descriptor is no {what}")));
    match option(libc::SO_TYPE) {
        Ok(libc::SOCK_STREAM) => {}
        Err(error) if error.raw_os_error() != Some(libc::ENOTSOCK) => return Err(error.into()),
        _ => return unfit("socket of streams"),
    }
    if option(libc::SO_ACCEPTCONN)? != 0 {
        return Ok(true);
    }
    let mut name_bytes: libc::socklen_t = 0;
    // SAFETY: the kernel writes the length that a name would have, and none of the name, for which there is no room.
    let named = unsafe { libc::getpeername(descriptor.as_raw_fd(), ptr::null_mut(), &raw mut name_bytes) };
    if named == 0 { Ok(false) } else { unfit("socket that is connected or listens") }
}

/// Puts the socket that `make` makes where C wants it.
///
/// # Safety
/// `socket` is NULL or may be written.
unsafe fn give(socket: *mut *mut YonderSocket, make: impl FnOnce() -> Result<YonderSocket, Failure>) -> c_int {
    answer(|| {
        // SAFETY: as the caller promises.
        let out = unsafe { Out::required(socket, "socket")? };
        out.set(handle::new(make()?));
        Ok(0)
    })
}

/// `yonder_listen` of `yonder_threads.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_listen(address: *const c_char, socket: *mut *mut YonderSocket) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { give(socket, || Ok(YonderSocket::Listener(TcpListener::bind(text(address, "address")?)?))) }
}

/// `yonder_connect` of `yonder_threads.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_connect(address: *const c_char, socket: *mut *mut YonderSocket) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { give(socket, || Ok(prompt(TcpStream::connect(text(address, "address")?)?))) }
}

/// `yonder_socket_adopt` of `yonder_threads.h`.
///
/// # Safety
/// The pointers are what the header says, and the descriptor is the caller's, who gives it up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_socket_adopt(descriptor: c_int, socket: *mut *mut YonderSocket) -> c_int {
    let adopt = || {
        if descriptor < 0 {
            return Err(Failure::new(libc::EBADF, format!("{descriptor} is no descriptor")));
        }
        // SAFETY: it is not -1, and the caller's for as long as this call.
        let listens = listens(unsafe { BorrowedFd::borrow_raw(descriptor) })?;
        // SAFETY: the kernel knows it, and the caller gives it up.
        let owned = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(if listens {
            YonderSocket::Listener(TcpListener::from_std(owned.into())?)
        } else {
            YonderSocket::Stream(TcpStream::from_std(owned.into())?)
        })
    };
    // SAFETY: as the caller promises.
    unsafe { give(socket, adopt) }
}

/// `yonder_accept` of `yonder_threads.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_accept(listener: *mut YonderSocket, socket: *mut *mut YonderSocket) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        handle::on(listener, "listener", |listener| {
            let out = Out::required(socket, "socket")?;
            let YonderSocket::Listener(listener) = listener else {
                return Err(Failure::invalid("the socket does not listen: give one of yonder_listen()"));
            };
            out.set(handle::new(prompt(listener.accept_any()?)));
            Ok(0)
        })
    }
}

/// `yonder_receive` of `yonder_threads.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_receive(socket: *mut YonderSocket, buffer: *mut c_void, length: usize) -> isize {
    let mut received = 0;
    // SAFETY: as the caller promises; what is copied lies in its buffer.
    let failed = unsafe {
        handle::on(socket, "socket", |socket| {
            let mut stream = socket.stream()?;
            let buffer = buffer.cast::<u8>();
            check_range(buffer, length, BYTES_MAX, "buffer")?;
            if is_far(buffer.addr()) {
                let mut chunk = [0; CHUNK];
                received = stream.read(&mut chunk[..length.min(CHUNK)])?;
                buffer.copy_from_nonoverlapping(chunk.as_ptr(), received);
            } else {
                received = stream.read(bytes_mut(buffer, length, BYTES_MAX, "buffer")?)?;
            }
            Ok(0)
        })
    };
    if failed < 0 { failed as isize } else { received.cast_signed() }
}

/// `yonder_send` of `yonder_threads.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_send(socket: *mut YonderSocket, buffer: *const c_void, length: usize) -> c_int {
    // SAFETY: as the caller promises; what is copied lies in its buffer.
    unsafe {
        handle::on(socket, "socket", |socket| {
            let mut stream = socket.stream()?;
            let buffer = buffer.cast::<u8>();
            check_range(buffer, length, BYTES_MAX, "buffer")?;
            if !is_far(buffer.addr()) {
                stream.write_all(bytes(buffer, length, BYTES_MAX, "buffer")?)?;
                return Ok(0);
            }
            let mut chunk = [0; CHUNK];
            for sent in (0..length).step_by(CHUNK) {
                let part = &mut chunk[..(length - sent).min(CHUNK)];
                part.as_mut_ptr().copy_from_nonoverlapping(buffer.add(sent), part.len());
                stream.write_all(part)?;
            }
            Ok(0)
        })
    }
}

/// `yonder_socket_timeout` of `yonder_threads.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_socket_timeout(socket: *mut YonderSocket, nanoseconds: u64) -> c_int {
    let timeout = (nanoseconds > 0).then(|| Duration::from_nanos(nanoseconds));
    // SAFETY: as the caller promises.
    unsafe {
        handle::on(socket, "socket", |socket| {
            match socket {
                YonderSocket::Listener(listener) => listener.set_timeout(timeout),
                YonderSocket::Stream(stream) => stream.set_timeout(timeout),
            }
            Ok(0)
        })
    }
}

/// `yonder_socket_descriptor` of `yonder_threads.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_socket_descriptor(socket: *mut YonderSocket) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { handle::on(socket, "socket", |socket| Ok(socket.descriptor().as_raw_fd())) }
}

/// `yonder_socket_close` of `yonder_threads.h`.
///
/// # Safety
/// `socket` is NULL, or nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_socket_close(socket: *mut YonderSocket) {
    // SAFETY: as the caller promises.
    unsafe { handle::free(socket) };
}
