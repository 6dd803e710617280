//! Strays: address spaces that a node has of an earlier time, and that the records do not give it. They ended, or were
//! given up with the node, while it was away; the node names them when it registers, and is told to end them.
//!
//! What is noted of them is bounded, because a node may be no true one: of each node so many are in the records at a
//! time, and more follow when it has ended those. The others are kept in memory while the node is connected. It gets
//! nothing new when it is not, and when it connects again it names all that it still has.
//!
//! Invariant: a node is told to end a stray, and has said that it has, before it is told to make that space anew: it
//! may have parts of regions.

use std::collections::BTreeSet;

use crate::controller::Controller;
use crate::message::Command;
use crate::names::{NodeId, Pid};
use crate::record::Presence;
use crate::{NODE_SPACES_MAX, STRAYS_NOTED_MAX};

/// Whether a node names more address spaces of controllers than any true one has.
pub(crate) fn are_too_many(spaces: &[Pid]) -> bool {
    spaces.iter().filter(|pid| pid.is_of_controller()).count() > NODE_SPACES_MAX
}

impl Controller {
    /// Takes the address spaces that a node names. Its strays that are noted at once are told with all else that the
    /// records want of it.
    pub(crate) fn find_strays(&mut self, node: NodeId, spaces: &[Pid]) {
        let is_known = |pid: &Pid| self.state.presences.contains_key(&(*pid, node));
        let strays: BTreeSet<Pid> =
            spaces.iter().copied().filter(|pid| pid.is_of_controller() && !is_known(pid)).collect();
        if let Some(live) = self.live.get_mut(&node) {
            live.strays = strays;
        }
        self.note_strays(node);
    }

    /// Tells a connected node to end strays, if it has ended enough of those that it was told before.
    pub(crate) fn end_strays(&mut self, node: NodeId) {
        for pid in self.note_strays(node) {
            self.command(node, Command::DestroySpace { pid });
        }
    }

    /// Ends a stray before the node is told to make it; `false` if the space is none there.
    pub(crate) fn end_if_stray(&mut self, pid: Pid, node: NodeId) -> bool {
        let is_stray = self.live.get_mut(&node).is_some_and(|live| live.strays.remove(&pid));
        if is_stray {
            self.state.put_presence(pid, node, Presence::Ending);
            self.command(node, Command::DestroySpace { pid });
        }
        is_stray
    }

    /// Notes the next strays of a node; returns which.
    fn note_strays(&mut self, node: NodeId) -> Vec<Pid> {
        let Some(live) = self.live.get_mut(&node).filter(|live| !live.strays.is_empty()) else { return Vec::new() };
        let ends = |((_, at), presence): &(&(Pid, NodeId), &Presence)| *at == node && **presence == Presence::Ending;
        let ending = self.state.presences.iter().filter(ends).count();
        let next = std::iter::from_fn(|| live.strays.pop_first());
        let noted: Vec<Pid> = next.take(STRAYS_NOTED_MAX.saturating_sub(ending)).collect();
        for pid in &noted {
            self.state.put_presence(*pid, node, Presence::Ending);
        }
        noted
    }
}
