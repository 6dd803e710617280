//! [`Controller`]: events in, actions out. Registration, and leases and their end, are here; requests of clients are in
//! `requests`, `place` and `group`, what nodes answer in `outcomes`, moves in `migrate`, how far leases have run in
//! `leases`.
//!
//! A request that needs a node to make a space first waits in `waits`, and is handled from its beginning again when
//! that node has answered or is lost: nothing is decided for it before.

use std::collections::BTreeMap;

use yonder_units::Nanos;

use crate::asker::Asker;
use crate::config::Config;
use crate::fullness::Fullness;
use crate::leases::{SpaceLeases, Times};
use crate::live::{Link, Live, Usage};
use crate::message::{Answer, Command, NodeReport, Outcome, Registration, Request};
use crate::names::{ClusterId, NodeId, Pid};
use crate::record::{
    Change, ClusterRecord, Duty, NodeRecord, Presence, RECORDS_FORMAT_READ_MAX, RECORDS_FORMAT_WRITTEN, Record,
    RecordKey, format_with,
};
use crate::restore::{RestoreError, check_whole};
use crate::state::State;
use crate::strays;
use crate::waits::Waits;
use crate::{NODE_MEMORY_BYTES_MAX, SPACES_ENDED_PER_EVENT_MAX, URL_BYTES_MAX, URLS_MAX};

/// Changes of records at which no further space is ended by the same event: each has one for every node that knows it.
const CHANGES_OF_ENDS_MAX: usize = 1024;

/// How long a controller that starts may not know what owners have said of their pages: those of which some are at too
/// few places say so each second, and find it first.
pub(crate) const PAGES_UNKNOWN: Nanos = 3_000_000_000;

/// The shell's name for a request that it wants answered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A node has connected, and [`Controller::admit`] has no objection. Its old connection, if any, is closed.
    Registered {
        /// What it says of itself.
        facts: Registration,
        /// How full it is.
        report: NodeReport,
        /// The address spaces that it has. One that names more than [`NODE_SPACES_MAX`](crate::NODE_SPACES_MAX) is no
        /// true node: its connection is closed, and nothing is noted of it.
        spaces: Vec<Pid>,
    },
    /// A node says how full it is.
    Reported(NodeId, NodeReport),
    /// A node has done a command, or failed to.
    Answered(NodeId, Outcome),
    /// A node's connection is closed.
    Disconnected(NodeId),
    /// A client asks.
    Asked(Ticket, Asker, Request),
    /// Time has passed.
    Tick,
}

/// What to do, in this order: make all changes durable, close connections, send commands, send answers. Nothing is sent
/// if the changes cannot be made durable; the controller must then end. They are best made together, but every prefix
/// of them is a state that a controller can go on from.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Actions {
    /// Changes to the records, in order.
    pub changes: Vec<Change>,
    /// Nodes whose connection is closed; they may register again.
    pub closed: Vec<NodeId>,
    /// Commands to connected nodes, in order.
    pub commands: Vec<(NodeId, Command)>,
    /// Answers to clients.
    pub answers: Vec<(Ticket, Answer)>,
    /// Address spaces that were ended because their leases were over: nothing is left to do, but to tell of it.
    pub expired: Vec<Pid>,
    /// Groups that got places outside their set, because no set had room: as above.
    pub outside_sets: Vec<(Pid, u32)>,
}

/// The controller of one cluster.
#[derive(Debug)]
pub struct Controller {
    pub(crate) config: Config,
    pub(crate) state: State,
    pub(crate) live: BTreeMap<NodeId, Live>,
    pub(crate) usage: BTreeMap<(Pid, u32), Usage>,
    pub(crate) leases: SpaceLeases,
    /// Limits of address spaces of tenants that have shown one since the controller started, and when each was said.
    pub(crate) space_limits: BTreeMap<String, (u64, u32)>,
    pub(crate) waiting: Waits,
    pub(crate) actions: Actions,
    /// Pages of spaces that are at fewer places than was asked for, as their owners have said to this controller.
    pub(crate) pages_below: BTreeMap<Pid, u64>,
    /// When the owners of what earlier controllers have made will have said so.
    pub(crate) heard_of_pages_at: Nanos,
    /// Groups that got places outside their set since the controller started.
    pub(crate) outside_sets: u64,
}

/// A request that waits until `node` has made `pid`.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) pid: Pid,
    pub(crate) node: NodeId,
    pub(crate) ticket: Ticket,
    pub(crate) asker: Asker,
    pub(crate) request: Request,
}

impl Controller {
    /// A controller with the records of an earlier one, which said the same to all nodes; or, without records, the
    /// first one of a cluster named `fresh`. All nodes have a whole lease to come back, and all owners of address
    /// spaces a whole one to renew. The next actions make the cluster's record durable.
    pub fn restore(
        config: Config,
        fresh: ClusterId,
        records: impl IntoIterator<Item = Record>,
        now: Nanos,
    ) -> Result<Self, RestoreError> {
        config.check()?;
        let region_bytes = config.region_bytes;
        let mut state = State::new(ClusterRecord::new(fresh, region_bytes));
        records.into_iter().for_each(|record| state.load(record));
        let stored = state.cluster.format;
        let format = format_with(stored, RECORDS_FORMAT_WRITTEN, RECORDS_FORMAT_READ_MAX);
        state.cluster.format = format.ok_or(RestoreError::Format { stored })?;
        if state.cluster.region_bytes != region_bytes {
            let stored = state.cluster.region_bytes;
            return Err(RestoreError::RegionBytes { stored, configured: region_bytes });
        }
        check_whole(&state)?;
        state.count(|_| {});
        state.end_spaces_without_record();
        let mut leases = SpaceLeases::new(now);
        let lease_until = leases.clock.end_of(config.lease);
        let live = state.nodes.keys().map(|node| (*node, Live::silent(lease_until))).collect();
        let usage = state.regions.keys().map(|key| (*key, Usage::default())).collect();
        state.spaces.iter().for_each(|(pid, space)| leases.renew(*pid, space.lease_ms));
        let (waiting, actions) = (Waits::default(), Actions::default());
        let (space_limits, outside_sets) = (BTreeMap::new(), 0);
        let pages_below = BTreeMap::new();
        let heard_of_pages_at = if state.spaces.is_empty() { now } else { now.saturating_add(PAGES_UNKNOWN) };
        let mut restored = Self {
            config,
            state,
            live,
            usage,
            leases,
            space_limits,
            waiting,
            actions,
            pages_below,
            heard_of_pages_at,
            outside_sets,
        };
        restored.seat_nodes();
        Ok(restored)
    }

    /// The cluster's name, which nodes keep.
    #[must_use]
    pub fn cluster(&self) -> ClusterId {
        self.state.cluster.id
    }

    /// Whether a node may register that has served `cluster` so far. The error says why not, and what to do at the
    /// node.
    pub fn admit(&self, facts: &Registration, cluster: Option<ClusterId>) -> Result<(), String> {
        let ours = &self.state.cluster;
        if cluster.is_some_and(|cluster| cluster != ours.id) {
            return Err("the node holds memory of another cluster, or of one whose controller has lost its state: \
                        start the node again to give that memory up"
                .to_owned());
        }
        self.check_name(facts)?;
        if facts.region_bytes != ours.region_bytes {
            let [theirs, ours] = [facts.region_bytes, ours.region_bytes].map(yonder_units::format_bytes);
            return Err(format!("the node has regions of {theirs}, the cluster of {ours}: start the node with {ours}"));
        }
        if !facts.page_bytes.is_power_of_two() || facts.page_bytes > facts.region_bytes {
            return Err(format!(
                "pages of {} bytes do not divide a region: type a smaller power of two",
                facts.page_bytes
            ));
        }
        if facts.urls.is_empty() || facts.urls.len() > URLS_MAX {
            return Err(format!("a node needs 1 to {URLS_MAX} URLs: name where clients reach it"));
        }
        let longest = facts.urls.iter().chain(&facts.name).map(String::len).max();
        if longest.is_some_and(|bytes| bytes > URL_BYTES_MAX) {
            return Err(format!(
                "a URL, or the name, of the node has more than {URL_BYTES_MAX} bytes: type a shorter one"
            ));
        }
        if facts.memory_bytes == 0 {
            return Err("a node without memory is of no use: type a --memory".to_owned());
        }
        if facts.memory_bytes > NODE_MEMORY_BYTES_MAX {
            let most = yonder_units::format_bytes(NODE_MEMORY_BYTES_MAX);
            return Err(format!("a node cannot have more than {most} of memory: type a smaller --memory"));
        }
        Ok(())
    }

    /// A name is of one node that is there, and a number of the node that had it first.
    fn check_name(&self, facts: &Registration) -> Result<(), String> {
        let known = self.state.nodes.get(&facts.node).and_then(|record| record.facts.name.as_ref());
        if known.is_some_and(|known| facts.name.as_ref() != Some(known)) {
            return Err(format!(
                "node {} is known by another name: start this one again for a number of its own",
                facts.node
            ));
        }
        let is_other = |record: &&NodeRecord| record.facts.name == facts.name && record.facts.node != facts.node;
        let Some(name) = &facts.name else { return Ok(()) };
        let mut others = self.state.nodes.values().filter(is_other);
        match others.find(|other| self.is_connected(other.facts.node)) {
            Some(other) => Err(format!(
                "a node called {name} is connected already, at {}: give this one an identity of its own with `yonder \
                 cluster add node NAME`",
                other.facts.urls.first().map_or("no address", String::as_str)
            )),
            None => Ok(()),
        }
    }

    /// A tenant may have so many address spaces at a time, as was said at a time, unless others were said later: an
    /// older certificate of the tenant may still be good. It keeps those that it has.
    pub fn limit_spaces(&mut self, tenant: &str, spaces_max: u32, since: u64) {
        match self.space_limits.get_mut(tenant) {
            Some(limit) if limit.0 > since => {}
            Some(limit) => *limit = (since, spaces_max),
            None => drop(self.space_limits.insert(tenant.to_owned(), (since, spaces_max))),
        }
    }

    /// As [`Controller::handle_late`], for an event that has just come.
    pub fn handle(&mut self, event: Event, now: Nanos) -> Actions {
        self.handle_late(event, Times::at(now))
    }

    /// Takes an event that has waited. Leases run by the clock, behind it by as long as something has waited that is
    /// still to be taken: behind that are renewals that came in time, and, of those of nodes, reports. Rates are
    /// of the times at which reports came, and rests of regions of the clock. To be called at least once in
    /// [`SPACE_LEASE_STEP_MAX`](crate::SPACE_LEASE_STEP_MAX): leases run no further without.
    pub fn handle_late(&mut self, event: Event, times: Times) -> Actions {
        self.leases.clock.look(times);
        let now = self.leases.clock.shown();
        self.end_leases();
        self.end_spaces();
        let changes_nothing = matches!(
            event,
            Event::Asked(
                _,
                _,
                Request::Open { .. }
                    | Request::Locate { .. }
                    | Request::Nodes
                    | Request::Spaces { .. }
                    | Request::Tenants
            )
        );
        match event {
            Event::Registered { facts, report, spaces } => self.register(facts, &report, &spaces, times.came),
            Event::Reported(node, report) => {
                self.report(node, &report, times.came);
                self.end_strays(node);
            }
            Event::Answered(node, outcome) => {
                self.is_there(node);
                self.answered(node, outcome, now);
            }
            Event::Disconnected(node) => self.disconnected(node),
            Event::Asked(ticket, asker, request) => self.ask(ticket, asker, request),
            Event::Tick => {}
        }
        if !changes_nothing {
            self.plan_moves(now);
        }
        self.forget_lost_nodes();
        self.actions.changes = self.state.take_changes();
        std::mem::take(&mut self.actions)
    }

    /// When the next lease ends: [`Event::Tick`] is due then at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Nanos> {
        let nodes = self.live.values().filter(|live| live.link != Link::Lost).map(|live| live.lease_until).min();
        let nodes = nodes.map(|end| self.leases.clock.shows_at(end));
        nodes.into_iter().chain(self.leases.next_end()).min()
    }

    pub(crate) fn fullness(&self) -> Fullness {
        Fullness::of(&self.config, &self.state, &self.live, &self.usage)
    }

    pub(crate) fn is_connected(&self, node: NodeId) -> bool {
        self.live.get(&node).is_some_and(|live| live.link == Link::Connected)
    }

    pub(crate) fn is_lost(&self, node: NodeId) -> bool {
        self.live.get(&node).is_none_or(|live| live.link == Link::Lost)
    }

    /// Sends a command now if the node is connected; else it follows from the records when the node registers.
    pub(crate) fn command(&mut self, node: NodeId, command: Command) {
        if self.is_connected(node) {
            self.actions.commands.push((node, command));
        }
    }

    fn register(&mut self, facts: Registration, report: &NodeReport, spaces: &[Pid], came: Nanos) {
        let node = facts.node;
        if strays::are_too_many(spaces) {
            self.disconnected(node);
            return self.actions.closed.push(node);
        }
        let known = self.state.nodes.get(&node);
        let duty = known.map_or(Duty::Serving, |record| record.duty);
        let seat = known.and_then(|record| record.seat).unwrap_or_else(|| self.seat_for(&facts));
        // Its seat is that of one of these, perhaps.
        self.forget_earlier(&facts);
        let record = NodeRecord { facts, duty, seat: Some(seat) };
        if self.state.nodes.get(&node) != Some(&record) {
            self.state.put(Record::Node(record));
        }
        self.live.insert(node, Live::silent(self.lease_end()));
        self.report(node, report, came);
        self.find_strays(node, spaces);
        self.repeat_commands(node);
    }

    /// Sends everything that the records want of a node that has just connected.
    fn repeat_commands(&mut self, node: NodeId) {
        let mut commands = Vec::new();
        for ((pid, at), presence) in &self.state.presences {
            match presence {
                Presence::Creating if *at == node => commands.push(self.create_order(*pid)),
                Presence::Ending if *at == node => commands.push(Command::DestroySpace { pid: *pid }),
                _ => {}
            }
        }
        for ((pid, region), record) in &self.state.regions {
            if record.leftovers.contains(&node) {
                commands.push(self.drop_order((*pid, *region)));
            }
            if record.owner == node {
                commands.extend(self.open_order((*pid, *region)));
                commands.extend(self.move_order((*pid, *region)).map(Command::MoveRegion));
            }
        }
        for command in commands {
            self.command(node, command);
        }
    }

    /// A node that is connected has said something, and has a whole lease again: it may have much to say before its
    /// next report.
    fn is_there(&mut self, node: NodeId) {
        let lease_until = self.lease_end();
        if let Some(live) = self.live.get_mut(&node).filter(|live| live.link == Link::Connected) {
            live.lease_until = lease_until;
        }
    }

    fn report(&mut self, node: NodeId, report: &NodeReport, came: Nanos) {
        let lease_until = self.lease_end();
        let Some(live) = self.live.get_mut(&node).filter(|live| live.link != Link::Lost) else { return };
        live.report(report, came, lease_until);
        for arrival in &report.arrived {
            self.arrived(node, arrival);
        }
        let reported: BTreeMap<(Pid, u32), _> =
            report.regions.iter().map(|region| ((region.pid, region.region), region)).collect();
        for (key, _) in self.state.regions.iter().filter(|(_, record)| record.owner == node) {
            self.usage.entry(*key).or_default().report(reported.get(key).copied());
        }
        self.drop_what_was_given_up(node, report);
    }

    fn disconnected(&mut self, node: NodeId) {
        if let Some(live) = self.live.get_mut(&node).filter(|live| live.link == Link::Connected) {
            live.end_link(Link::Silent);
        }
    }

    /// The end of a node's lease that begins now, in the time of leases.
    fn lease_end(&self) -> Nanos {
        self.leases.clock.end_of(self.config.lease)
    }

    fn end_leases(&mut self) {
        let over = |live: &Live| live.link != Link::Lost && self.leases.clock.is_over_of_node(live.lease_until);
        let ended: Vec<NodeId> = self.live.iter().filter(|(_, live)| over(live)).map(|(node, _)| *node).collect();
        for node in &ended {
            if self.is_connected(*node) {
                self.actions.closed.push(*node);
            }
            self.live.get_mut(node).expect("it is in the map").end_link(Link::Lost);
        }
        // Only now, so that what is asked again does not go to another node that is lost too.
        for node in ended {
            self.give_up_what_is_empty(node);
            self.ask_again(node, None);
        }
    }

    /// Ends address spaces whose leases are over, some of them if they are many: the next deadline has passed then.
    fn end_spaces(&mut self) {
        while self.actions.expired.len() < SPACES_ENDED_PER_EVENT_MAX
            && self.state.changes_made() < CHANGES_OF_ENDS_MAX
            && let Some(pid) = self.leases.over()
        {
            self.destroy_space(pid);
            self.actions.expired.push(pid);
        }
    }

    /// A lost node keeps what has a region there. All else is ended now; if the node comes back it is told so, because
    /// its registration names the spaces that it has.
    pub(crate) fn give_up_what_is_empty(&mut self, node: NodeId) {
        let spaces: Vec<Pid> = self.state.presences.keys().filter(|(_, at)| *at == node).map(|(pid, _)| *pid).collect();
        for pid in spaces {
            self.cancel_unsent_moves(pid, node);
            let needs = self
                .state
                .regions_of(pid)
                .any(|(_, record)| record.owner == node || record.moving.is_some_and(|moving| moving.to == node));
            if needs {
                continue;
            }
            let with_leftovers: Vec<u32> = self
                .state
                .regions_of(pid)
                .filter(|(_, record)| record.leftovers.contains(&node))
                .map(|(region, _)| region)
                .collect();
            if !with_leftovers.is_empty() {
                // First, so that no prefix of the changes has forgotten a part of a region that the node would keep.
                self.state.put_presence(pid, node, Presence::Ending);
            }
            for region in with_leftovers {
                let mut record = self.state.regions[&(pid, region)].clone();
                record.leftovers.remove(&node);
                self.state.put_region((pid, region), record);
            }
            self.state.delete(RecordKey::Presence(pid, node));
        }
    }

    fn forget_lost_nodes(&mut self) {
        let lost: Vec<NodeId> =
            self.live.iter().filter(|(_, live)| live.link == Link::Lost).map(|(node, _)| *node).collect();
        self.forget_if_empty(lost);
    }

    /// A name is of one node: others that had it are not waited for if they have nothing. One that connects ever anew
    /// with another number would else have as many records as it likes for as long as a lease.
    fn forget_earlier(&mut self, facts: &Registration) {
        let Some(name) = &facts.name else { return };
        let nodes = self.state.nodes.iter().filter(|(_, record)| record.facts.name.as_ref() == Some(name));
        let others = nodes.map(|(node, _)| *node).filter(|node| *node != facts.node && !self.is_connected(*node));
        let others = others.collect();
        self.forget_if_empty(others);
    }

    fn forget_if_empty(&mut self, nodes: Vec<NodeId>) {
        for node in nodes {
            if !self.state.presences.keys().any(|(_, at)| *at == node) {
                self.state.delete(RecordKey::Node(node));
                self.live.remove(&node);
            }
        }
    }
}
