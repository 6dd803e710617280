//! What a front end does when memory, places or patience end: who gives way, what is refused, and who is closed.
//!
//! When a connection needs memory that the others have, or a new one needs a place, the one that has been silent
//! longest is closed if it has been for [`SILENT_NS`]; otherwise what is asked for is refused.

use yonder_units::Nanos;

use super::connection::Connection;
use super::frontend::KvFrontend;
use super::progress::SILENT_NS;
use super::registry::Key;
use crate::protocol::Command;

/// How long none is looked for after no silent connection was found, so that refusing is cheap.
const SILENT_PAUSE_NS: Nanos = 10_000_000;
/// How often connections that are idle for too long are looked for, at least.
const IDLE_PERIOD_NS: Nanos = 1_000_000_000;
/// How long a client has for the handshake of TLS.
const HANDSHAKE_NS_MAX: Nanos = 10_000_000_000;

impl KvFrontend {
    /// Charges a connection for what it has and needs, and closes others that are silent until there is room for that.
    /// Returns whether there is.
    pub(super) fn make_room(&mut self, key: Key) -> bool {
        loop {
            let Some(connection) = self.connections.get_mut(key) else { return true };
            if connection.settle(&mut self.traffic) {
                return true;
            }
            if !self.free_memory(Some(key)) {
                return false;
            }
        }
    }

    /// Closes the connection, other than `keeps`, that has held memory in silence for longest, if one has for too long.
    /// Returns whether it did.
    pub(super) fn free_memory(&mut self, keeps: Option<Key>) -> bool {
        if self.time.now < self.memory_from {
            return false;
        }
        match self.longest_silent(|other, connection| Some(other) != keeps && connection.is_charged()) {
            Some(silent) => {
                self.kick(silent);
                true
            }
            None => {
                self.memory_from = self.time.now + SILENT_PAUSE_NS;
                false
            }
        }
    }

    /// There is no room for a command: what is to be executed instead, if anything.
    pub(super) fn shed(&mut self, key: Key, command: Command) -> Option<Command> {
        self.traffic.buffer_refusals += 1;
        let instead = self.connections.get_mut(key)?.shed(command);
        if instead.is_none() {
            self.enqueue(key);
        }
        instead
    }

    /// Closes a connection that is silent half way, or has never said a thing, in favour of a new one. Returns whether
    /// there is a place.
    pub(super) fn make_place(&mut self) -> bool {
        if self.time.now < self.place_from {
            return false;
        }
        match self.longest_silent(|_, connection| connection.may_give_way()) {
            Some(silent) => self.kick(silent),
            None => self.place_from = self.time.now + SILENT_PAUSE_NS,
        }
        self.connections.len() < self.report.config.connections_max
    }

    fn longest_silent(&self, among: impl Fn(Key, &Connection) -> bool) -> Option<Key> {
        let among = self.connections.iter().filter(|(key, connection)| among(*key, connection));
        let silent = among.map(|(key, connection)| (connection.silent_ns(self.time.now), key));
        silent
            .filter(|(silent_ns, _)| *silent_ns >= SILENT_NS)
            .max_by_key(|(silent_ns, _)| *silent_ns)
            .map(|(_, key)| key)
    }

    fn kick(&mut self, silent: Key) {
        self.traffic.silent_kicks += 1;
        self.close(silent);
    }

    /// Refuses the command for which there is no room; the connection goes on if the protocol allows that.
    pub(super) fn refuse_input(&mut self, key: Key) {
        self.traffic.buffer_refusals += 1;
        if let Some(connection) = self.connections.get_mut(key) {
            connection.refuse_input();
        }
    }

    /// Ends a connection for which there is no room.
    pub(super) fn refuse(&mut self, key: Key) {
        self.traffic.buffer_refusals += 1;
        self.close(key);
    }

    /// Ends the connections that have been silent for longer than they may, or have not shown a handshake in time.
    pub(super) fn close_idle(&mut self) {
        if self.time.now < self.idle_from {
            return;
        }
        let never = u64::MAX;
        let idle_ns =
            self.report.config.idle_timeout.map_or(never, |timeout| u64::try_from(timeout.as_nanos()).unwrap_or(never));
        let handshake_ns = if self.access.certificates.is_some() { HANDSHAKE_NS_MAX } else { never };
        self.idle_from = self.time.now + (idle_ns.min(handshake_ns) / 4).min(IDLE_PERIOD_NS);
        if idle_ns == never && handshake_ns == never {
            return;
        }
        let now = self.time.now;
        let is_late = |connection: &Connection| {
            let silent_ns = connection.silent_ns(now);
            silent_ns >= idle_ns || (connection.is_handshaking() && silent_ns >= handshake_ns)
        };
        let late = self.connections.iter().filter(|(_, connection)| is_late(connection));
        let late: Vec<Key> = late.map(|(key, _)| key).collect();
        self.traffic.idle_kicks += late.len() as u64;
        late.into_iter().for_each(|key| self.close(key));
    }

    pub(super) fn close(&mut self, key: Key) {
        let Some(mut connection) = self.connections.remove(key) else { return };
        // Closing the socket ends its registration as well, should this fail.
        let _ = self.poll.registry().deregister(connection.source());
        self.traffic.buffers.release(connection.into_charge());
        self.traffic.connections = self.connections.len() as u64;
        // A file descriptor is free again.
        self.accept_from = 0;
    }
}
