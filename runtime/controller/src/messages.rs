//! The lines between the controller and its peers: one JSON object each, UTF-8, ended by a line feed.
//!
//! ```json
//! {"ask":{"id":1,"request":{"locate":{"pid":2147483648,"key":"00..0f","region":1}}}}
//! {"answer":{"id":1,"answer":{"located":{"region":1,"node":"00000000000000a1","urls":["tcp://10.0.0.2:7000"],...}}}}
//! ```
//!
//! A node's first line is `register`; the controller's first answer to it is `registered` or `turned-away`. All other
//! connections are clients. What is inside is in `core/placement`.
//!
//! Releases next to each other understand one another: a field that is added has a default, a name that is added is
//! sent to those alone that are known to know it, and what is not known is told from what is wrong (`unknown`). What
//! cannot be added so needs another [`VERSION`], and both are spoken for one release.

use serde::{Deserialize, Serialize};
use yonder_placement::{Answer, ClusterId, Command, NodeReport, Outcome, Pid, Registration, Request};

/// The version of the lines that this release speaks, as nodes and controllers tell when a node registers.
pub const VERSION: u32 = 2;
/// The earliest that it understands: releases that told none spoke the first one.
pub const VERSION_MIN: u32 = 1;

/// What nodes and clients send.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToController {
    /// A node, first: it wants to serve.
    Register {
        /// What it is.
        facts: Registration,
        /// The cluster it has served since it started, if any.
        cluster: Option<ClusterId>,
        /// The address spaces that it has.
        spaces: Vec<Pid>,
        /// How full it is.
        report: NodeReport,
        /// It knows [`FromController::Alive`]; those of earlier releases do not.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        knows_alive: bool,
        /// The version of the lines that it speaks.
        #[serde(default = "first_version")]
        version: u32,
        /// The earliest that it understands; the first one is not said.
        #[serde(default = "first_version", skip_serializing_if = "is_first_version")]
        version_min: u32,
    },
    /// A node, about three times in a lease: how full it is.
    Report(NodeReport),
    /// A node: what became of a command.
    Outcome(Outcome),
    /// A client asks.
    Ask {
        /// The client's name for it; the answer has the same.
        id: u64,
        /// What it asks.
        request: Request,
    },
    /// What only a later release knows, and how a client names it if it is a request.
    #[serde(skip)]
    Unknown {
        /// The name of the request.
        ask: Option<u64>,
    },
}

/// What the controller sends.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FromController {
    /// To a node: it serves from now on.
    Registered {
        /// The cluster, which the node names when it registers again.
        cluster: ClusterId,
        /// How long the node may be silent, in milliseconds.
        lease_ms: u64,
        /// How long the controller is silent at most, in milliseconds: it says [`FromController::Alive`] if it has
        /// nothing else to say. 0 if it does not, as to nodes that do not know that, and at earlier releases.
        #[serde(default, skip_serializing_if = "is_zero")]
        alive_every_ms: u64,
        /// The version of the lines that the controller speaks.
        #[serde(default = "first_version")]
        version: u32,
    },
    /// To a node: the controller runs and leads.
    Alive {},
    /// To a node: it cannot serve; or to any peer: it is not let in, or the line cannot be read. The connection is
    /// closed.
    TurnedAway {
        /// Why, in one line.
        cause: String,
    },
    /// To a node: do this.
    Do(Command),
    /// To a client.
    Answer {
        /// The client's name for its request.
        id: u64,
        /// The answer.
        answer: Answer,
    },
    /// What only a later release knows.
    #[serde(skip)]
    Unknown {
        /// The client's name for its request, if it is an answer.
        answer_to: Option<u64>,
        /// What it is called.
        name: String,
    },
}

/// That of releases which tell none.
fn first_version() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_first_version(version: &u32) -> bool {
    *version == first_version()
}

/// Why a peer that speaks this version is not spoken with; `None` if it is.
pub(crate) fn too_old(version: u32) -> Option<String> {
    (version < VERSION_MIN).then(|| {
        format!(
            "version {version} of the protocol is not understood any more, {VERSION_MIN} to {VERSION} are: upgrade it \
             by the releases between, one after the other"
        )
    })
}

/// Why a node that understands no version before this one is not spoken with; `None` if it is.
pub(crate) fn too_new(version_min: u32) -> Option<String> {
    (version_min > VERSION).then(|| {
        format!(
            "this controller speaks version {VERSION} of the protocol, and the node understands none before \
             {version_min}: upgrade the controllers first, by the releases between"
        )
    })
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}
