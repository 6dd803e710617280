//! What is counted in a run, to see that runs are about something.

/// Things that happen among clients and nodes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Count {
    /// Operations that were done.
    Done,
    /// Operations that were refused with this code.
    Refused(u32),
    /// Operations of which nobody knows.
    Unknown,
    /// Operations that were cancelled.
    Cancelled,
    /// Requests that were sent.
    Requests,
    /// Requests that nodes had executed before.
    Repeated,
    /// Aborts that were answered.
    Aborts,
    /// Nodes that lost everything.
    Restarts,
    /// Events.
    Events,
    /// Leases that ran out.
    LeasesOver,
    /// Leases that were renewed.
    Renewals,
    /// Processes that ended, and others that began in their place.
    ProcessRestarts,
    /// What a tenant sent that claims several times for one request.
    Lies,
    /// Frees and ends of address spaces that took several pieces.
    InPieces,
    /// Words that were judged by themselves.
    Words,
    /// Capabilities that were revoked.
    Revoked,
    /// Requests with capabilities that were void.
    Spent,
    /// Address spaces with the number of one that had ended.
    NumbersAgain,
    /// Sessions that were made.
    Sessions,
    /// Sessions that followed others of the same life of a node.
    SessionsRenewed,
    /// What an attacker did to messages that are protected.
    Attacks,
    /// Messages that were not let in, or not taken.
    TurnedAway,
}

/// Things that happen in a run of [`simulate_order`](crate::simulate_order).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum OrderCount {
    /// Writes that were acknowledged.
    Writes,
    /// Reads that were compared.
    Reads,
    /// Writes that were left out because the node has the content.
    Clean,
    /// Discards and frees that the node agreed to.
    Confirmed,
    /// Discards and frees that were given up.
    GivenUp,
    /// Times at which the slow path stood still.
    Stalls,
}

/// Things that happen in a run of [`simulate_moves`](crate::simulate_moves).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum MoveCount {
    /// Moves that ended well.
    Moved,
    /// Moves that were given up.
    GivenUp,
    /// Moves whose target heard of the end from the source.
    HeardOfSource,
    /// Moves whose target heard of the end from the controller.
    HeardOfController,
    /// Reads and writes that were executed.
    Executed,
    /// Reads and writes that were refused.
    Refused,
    /// Operations at a node that had the region before.
    ByOldPlaces,
    /// Nodes that ended.
    Restarts,
    /// Regions whose data was lost with a node.
    Lost,
    /// Starts of the controller.
    Controllers,
}
