//! Protection of messages between a client and a memory node: authenticated, or encrypted and authenticated.
//!
//! A *session* is what a client has made with a node over mutual TLS: a [`SessionNumber`] and a [`SessionSecret`]. The
//! node keeps neither. The number travels in every message, and the node derives the keys from it, from the address
//! that the message comes from, and from its own [`NodeSecret`]. So a node has no state for its sessions, and a sender
//! that has the key has proven its address. Each *lane* of a session has [`LaneKeys`] of its own, one for requests and
//! one for answers, and others at each [`Home`]: a message is for one thread of the node, or greets.
//!
//! [`seal`] and [`open`] work in place on a whole message: a header of [`HEADER_BYTES`] whose first [`PREFIX_BYTES`]
//! they write, a payload, and a tag of [`TAG_BYTES`]. They neither allocate nor lock, because a client seals while it
//! handles a fault. A node has [`Doors`], which its threads share, and a [`Gate`] for each thread: they use
//! [`KeyCache::open_request`], ask [`ReplayWindows::accept`], and answer with the same protection. A lane of a client
//! has a [`Protector`], under a [`Chain`] of sessions that follow one another.
//!
//! Files: `number`, `cipher` and `home` have the words; `secret` derives keys; `frame` is the layout of the prefix,
//! `seal` the cryptography; `counter` makes nonces; `replay` and `key_cache` are what a data thread of a node has;
//! `doors`, `numbers` and `gate` are the node's end, `chain` and `protector` the client's.
//!
//! Neighbours: `core/wire` has the messages, `core/client` the clock of a node as its client knows it; `runtime/node`
//! and `runtime/fabric` make sessions over TLS and own both ends, and `testing/sim` runs the same code.
//!
//! Invariants: no key seals two messages with one counter, if each lane has one [`RequestCounter`] and each thread of a
//! node one [`AnswerCounter`]; cipher and protection are part of every key, so a message of another protection is a
//! forgery; a message is accepted once at most by the [`ReplayWindows`] that judge its lane.

#![forbid(unsafe_code)]

mod chain;
mod cipher;
mod counter;
mod doors;
mod frame;
mod gate;
mod grant;
mod home;
mod key_cache;
mod number;
mod numbers;
mod protector;
mod replay;
mod seal;
mod secret;

pub use chain::{Chain, Kept, Process, Renewal, RenewalTimes, Session};
pub use cipher::{Cipher, Protection};
pub use counter::{AnswerCounter, NODE_THREADS_MAX, RequestCounter};
pub use doors::{Admission, Doors, ProtectedLane, Rules, SESSION_HOURS, Table, Unwelcome, Wrap};
pub use frame::{
    Frame, HEADER_BYTES, PAYLOAD_BYTES_MAX, PREFIX_BYTES, TAG_BYTES, THREAD_FIELD, ThreadField, protected_bytes,
};
pub use gate::{Arrived, Gate, Origin};
pub use grant::{GrantBytes, SessionGrant, SessionRequest};
pub use home::{Door, Home};
pub use key_cache::{KeyCache, Opened, Refused};
pub use number::{SESSION_HOURS_MAX, SessionNumber};
pub use numbers::{Numbers, Visitor};
pub use protector::{Foreign, Protector};
pub use replay::{ReplayWindows, WINDOW_MESSAGES};
pub use seal::{Forged, open, seal};
pub use secret::{Key, LaneKeys, NodeSecret, SessionSecret};
