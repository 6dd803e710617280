//! Servers that are asked by datagrams, and load for them (Adios, section 5).
//!
//! An application says how its requests and answers are spelt ([`Protocol`]) and has a [`Handler`]; [`UdpServer`] gives
//! it a socket on the dispatcher thread, and a unithread for each request. [`load`] asks such a server the requests of
//! a [source](yonder_load::RequestSource) in an open or a closed loop, verifies every answer and measures from the
//! intended start of each request.
//!
//! ```text
//!   load: RequestSource --ask--> Protocol --datagram--> UdpFrontend --admit--> Served: Handler on a unithread
//!             ^--judge-- Protocol <--datagrams, put together-- UdpFrontend <--complete-- bytes of the answer
//! ```
//!
//! Files: `wire` is what a datagram consists of; `frontend` and `handler` are the server, and `address_tokens` how it
//! knows that a client receives where it says; `loader` is one thread of a load, `load` all of them and what they have
//! seen; `spelling` is for requests and answers that serde knows.
//!
//! Neighbours: `adapters/rocksdb` is one of the applications; `apps/load` has arrivals and recorders; `sys/datagram`
//! the system calls.
//!
//! Invariants: a request is answered at most once; an answer in several datagrams is whole or it is none; for an
//! address that is not proven nothing is executed, and no more bytes go there than came.
//!
//! [`Handler`]: yonder::sched::Handler

#![forbid(unsafe_code)]

mod address_tokens;
mod frontend;
mod handler;
mod load;
mod loader;
pub mod spelling;
mod wire;

pub use frontend::{ServeError, Shutdown, UdpFrontend, UdpServer};
pub use handler::{Answered, Asked, Served};
pub use load::{LoadError, LoadReport, LoadSettings, hello, load};
pub use wire::{PIECE_BYTES, REQUEST_BYTES_MAX};

/// How the requests and the answers of an application are spelt.
pub trait Protocol: 'static {
    /// What is asked.
    type Request: Send + 'static;
    /// What comes back if all is well.
    type Answer;

    /// Appends a request: at least one byte, at most [`REQUEST_BYTES_MAX`].
    fn put_request(request: &Self::Request, to: &mut Vec<u8>);

    /// The request that `bytes` are.
    ///
    /// # Errors
    /// If they are none; the text tells the client why.
    fn request(bytes: &[u8]) -> Result<Self::Request, String>;

    /// Appends an answer.
    fn put_answer(answer: &Self::Answer, to: &mut Vec<u8>);

    /// The answer that `bytes` are; `None` if they are none.
    fn answer(bytes: &[u8]) -> Option<Self::Answer>;
}
