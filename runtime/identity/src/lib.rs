//! Who is at the other end of a connection: [`Credential`], [`Authority`], and TLS with both ends named.
//!
//! A [`Credential`] is one file: a certificate of the cluster's own [`Authority`] with its private key, or one shared
//! key, from which both ends derive the same authority and a certificate of every role. So there is one mechanism, TLS
//! 1.3 in which each end shows a certificate, and the checks are those of rustls: chain, time, purpose, revocation, and
//! for a client the name of the server's role. [`connect`] and [`accept`] shake hands within a time and a number of
//! bytes, and say who the [`Peer`] is; a [`SecureStream`] is then read by one thread and written by others. [`Places`]
//! are of those who shake hands at a time; a [`ServerEnd`] is TLS for clients of others, such as Prometheus.
//!
//! Invariants: a file with a secret is read only if its user alone may; no secret is in debug output; a certificate
//! names one [`Role`]; nothing is resumed, so each connection is judged by the lists and the time of its handshake.
//!
//! Neighbours: `runtime/controller` and `runtime/node` ask for identities at their doors, `edge/cli` has the commands.

#![forbid(unsafe_code)]

mod authority;
mod certificate;
mod credential;
mod error;
mod handshake;
mod key;
mod named;
mod peer;
mod places;
mod private_file;
mod role;
mod secure;
mod server_end;
mod stream;

pub use authority::{Added, Authority, DAYS_DEFAULT, DAYS_MAX, Issued, REVOKED_FILE};
pub use credential::Credential;
pub use error::{HandshakeError, IdentityError};
pub use handshake::{Expected, HANDSHAKE_TIMEOUT, accept, connect, connect_bare};
pub use key::SharedKey;
pub use named::child_variables;
pub use peer::{Limits, Peer};
pub use places::{Host, Place, Places};
pub use private_file::read_secret;
pub use role::{NAME_BYTES_MAX, Role, check_name};
pub use secure::SecureStream;
pub use server_end::ServerEnd;
pub use stream::Stream;
