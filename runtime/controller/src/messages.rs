//! The lines between the controller and its peers: one JSON object each, UTF-8, ended by a line feed.
//!
//! ```json
//! {"ask":{"id":1,"request":{"locate":{"pid":2147483648,"key":"00..0f","region":1}}}}
//! {"answer":{"id":1,"answer":{"located":{"region":1,"node":"00000000000000a1","urls":["tcp://10.0.0.2:7000"],...}}}}
//! ```
//!
//! A node's first line is `register`; the controller's first answer to it is `registered` or `turned-away`. All other
//! connections are clients. What is inside is in `core/placement`.

use serde::{Deserialize, Serialize};
use yonder_placement::{Answer, ClusterId, Command, NodeReport, Outcome, Pid, Registration, Request};

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
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}
