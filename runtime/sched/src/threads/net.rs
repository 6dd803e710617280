//! Sockets that light threads wait for: [`TcpListener`] and [`TcpStream`].
//!
//! A socket is asked first; if it would block, the light thread parks until the socket may be ready, and asks again.
//! Many light threads may use one socket, by reference. An ordinary thread blocks, and so does a unithread that serves
//! a request.
//!
//! A light thread whose socket is always ready does not park: one that should not keep its worker yields now and then.
//! Buffers are passed to the kernel, which cannot wait for a page: they are in local memory.
//!
//! Files: `tcp` has the sockets, `source` how threads wait for one, `reactor` how a worker learns that one is ready.

mod reactor;
mod source;
mod tcp;

pub(super) use self::reactor::Reactor;
pub use self::tcp::{TcpListener, TcpStream};
