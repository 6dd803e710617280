//! [`Address`]: a peer's address in the kernel's form.
//!
//! UNSAFETY: reading the two families' forms out of one buffer that is large and aligned enough for both.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Bytes of the longest address: that of IPv6.
pub(crate) const ADDRESS_BYTES_MAX: usize = size_of::<libc::sockaddr_in6>();

/// Address of a peer.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Address {
    raw: Raw,
    length: libc::socklen_t,
}

#[derive(Clone, Copy)]
#[repr(C)]
union Raw {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
    bytes: [u8; ADDRESS_BYTES_MAX],
}

/// The length of a `T`, as the kernel counts it.
#[expect(clippy::cast_possible_truncation, reason = "a structure is smaller than 4 GiB")]
pub(crate) const fn length_of<T>() -> libc::socklen_t {
    size_of::<T>() as libc::socklen_t
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a family is a small number")]
const fn family(number: libc::c_int) -> libc::sa_family_t {
    number as libc::sa_family_t
}

impl Address {
    /// No address: its bytes are zeros.
    pub const NONE: Self = Self { raw: Raw { bytes: [0; ADDRESS_BYTES_MAX] }, length: 0 };

    /// Where the kernel reads and writes the address.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut libc::c_void {
        (&raw mut self.raw).cast()
    }

    /// Bytes of it that count.
    pub(crate) fn length(&self) -> libc::socklen_t {
        self.length
    }

    /// Notes how much the kernel has written.
    pub(crate) fn set_length(&mut self, length: libc::socklen_t) {
        self.length = length.min(length_of::<[u8; ADDRESS_BYTES_MAX]>());
    }

    /// Family, port and address, in the kernel's form.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes()[..self.length as usize]
    }

    fn bytes(&self) -> &[u8; ADDRESS_BYTES_MAX] {
        // SAFETY: every byte of the union is initialised by both constructors, and the kernel only writes more.
        unsafe { &self.raw.bytes }
    }

    /// The address as the standard library has it; `None` if there is none, or of a family that this crate does not
    /// know.
    #[must_use]
    pub fn to_socket_addr(&self) -> Option<SocketAddr> {
        // SAFETY: both forms begin with the family, and any bytes are valid for both.
        let family = unsafe { self.raw.v4.sin_family };
        match libc::c_int::from(family) {
            libc::AF_INET if self.length as usize >= size_of::<libc::sockaddr_in>() => {
                // SAFETY: the family says that this form was written, and any bytes are valid for it.
                let v4 = unsafe { self.raw.v4 };
                let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
                Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
            }
            libc::AF_INET6 if self.length as usize >= size_of::<libc::sockaddr_in6>() => {
                // SAFETY: as above.
                let v6 = unsafe { self.raw.v6 };
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                let port = u16::from_be(v6.sin6_port);
                Some(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        let mut made = Self::NONE;
        match address {
            SocketAddr::V4(v4) => {
                made.raw.v4 = libc::sockaddr_in {
                    sin_family: const { family(libc::AF_INET) },
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from(*v4.ip()).to_be() },
                    sin_zero: [0; 8],
                };
                made.length = length_of::<libc::sockaddr_in>();
            }
            SocketAddr::V6(v6) => {
                made.raw.v6 = libc::sockaddr_in6 {
                    sin6_family: const { family(libc::AF_INET6) },
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                };
                made.length = length_of::<libc::sockaddr_in6>();
            }
        }
        made
    }
}

impl PartialEq for Address {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Address {}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_socket_addr() {
            Some(address) => address.fmt(formatter),
            None => formatter.write_str("an unknown address"),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}
