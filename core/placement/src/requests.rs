//! What clients ask, apart from where allocations go (`place`).

use std::collections::{BTreeMap, BTreeSet};

use yonder_wire::Rights;

use crate::SPACES_PER_ANSWER_MAX;
use crate::asker::{Asker, Maker};
use crate::controller::{Controller, Ticket, Waiting};
use crate::fullness::Fullness;
use crate::leases::granted;
use crate::live::Link;
use crate::message::{Answer, Command, NodeCondition, NodeView, Refusal, Request, SpaceView};
use crate::names::{Key, NodeId, Pid};
use crate::place::Placing;
use crate::record::{Duty, Keys, Presence, Record, RecordKey, SpaceRecord};

impl Controller {
    pub(crate) fn ask(&mut self, ticket: Ticket, asker: Asker, request: Request) {
        if let Err(refusal) = self.check_asker(&asker, &request) {
            return self.actions.answers.push((ticket, Answer::Refused(refusal)));
        }
        // One that waits is no word of its owner each time that a node lets it go on.
        if let Some((pid, key)) = request.space()
            && !self.waiting.asks_again()
            && self.owned(pid, key).is_ok()
        {
            self.renew(pid);
        }
        let answer = match &request {
            Request::CreateSpace { keys, lease_ms } => self.create_space(*keys, *lease_ms, &asker),
            Request::Open { pid, key } => self.rights(*pid, *key).map(|rights| {
                let (region_bytes, lease_ms) = (self.config.region_bytes, self.state.spaces[pid].lease_ms);
                Answer::Opened { rights, region_bytes, lease_ms }
            }),
            Request::PlaceRegion { pid, key, .. } | Request::PlaceGroup { pid, key, .. } => {
                let placing = self.owned(*pid, *key).map(|()| match &request {
                    Request::PlaceGroup { wanted, .. } => self.place_group(*pid, wanted),
                    Request::PlaceRegion { bytes, avoid, .. } => self.place(*pid, *bytes, avoid),
                    _ => unreachable!("it is one of the two"),
                });
                match placing {
                    Ok(Placing::Done(answer)) => Ok(answer),
                    Ok(Placing::WaitsFor(node)) => {
                        let pid = *pid;
                        return self.wait_for(Waiting { pid, node, ticket, asker, request });
                    }
                    Err(refusal) => Err(refusal),
                }
            }
            Request::GiveUp { pid, key, region } => self.owned(*pid, *key).map(|()| self.give_up(*pid, *region)),
            Request::NoteProtection { pid, key, pages_below } => {
                self.owned(*pid, *key).map(|()| self.note_protection(*pid, *pages_below))
            }
            Request::Locate { pid, key, region } => self.locate(*pid, *key, *region),
            Request::DestroySpace { pid, key } => self.owned(*pid, *key).map(|()| self.destroy_space(*pid)),
            Request::Nodes => Ok(self.nodes()),
            Request::Spaces { from } => Ok(self.spaces(*from)),
            Request::Tenants => Ok(self.tenants()),
            Request::Drain { node } => self.drain(node),
            Request::Undrain { node } => self.node_named(node).map(|node| {
                self.set_duty(node, Duty::Serving);
                Answer::Undrained
            }),
        };
        self.actions.answers.push((ticket, answer.unwrap_or_else(Answer::Refused)));
    }

    /// Whether the asker may ask this; of a space that there is not, it is told what all are told.
    fn check_asker(&self, asker: &Asker, request: &Request) -> Result<(), Refusal> {
        asker.check(request)?;
        let Some((pid, key)) = request.space() else { return Ok(()) };
        self.rights(pid, key)?;
        asker.check_space(pid, self.state.spaces[&pid].maker.as_ref())
    }

    fn rights(&self, pid: Pid, key: Key) -> Result<Rights, Refusal> {
        self.state.spaces.get(&pid).and_then(|space| space.keys.rights(key)).ok_or(Refusal::BadKey { pid })
    }

    fn owned(&self, pid: Pid, key: Key) -> Result<(), Refusal> {
        match self.rights(pid, key)? {
            Rights::Owner => Ok(()),
            Rights::Read | Rights::ReadWrite => Err(Refusal::NotAllowed { pid }),
        }
    }

    /// A client that has heard no answer asks again with the same keys, and gets the same space.
    fn create_space(&mut self, keys: Keys, lease_ms: u32, asker: &Asker) -> Result<Answer, Refusal> {
        let region_bytes = self.config.region_bytes;
        let known = self.state.spaces.iter().find(|(_, known)| known.keys == keys);
        if let Some((pid, known)) = known {
            asker.check_space(*pid, known.maker.as_ref())?;
            let (pid, lease_ms) = (*pid, known.lease_ms);
            self.renew(pid);
            return Ok(Answer::SpaceCreated { pid, region_bytes, lease_ms });
        }
        let maker = asker.maker();
        let limit = match asker {
            Asker::Tenant(name) => self.space_limits.get(name).map(|(_, limit)| *limit as usize),
            _ => None,
        };
        let spaces_max = self.config.spaces_per_maker_max.min(limit.unwrap_or(usize::MAX));
        let made = self.state.spaces.values().filter(|space| space.maker == maker).count();
        if maker.is_some() && made >= spaces_max {
            return Err(Refusal::TooManySpaces { asker: asker.to_string(), spaces_max });
        }
        let pid = self.state.cluster.next_pid;
        let Some(next) = pid.0.checked_add(1) else {
            return Err(Refusal::Busy { cause: "no address space's number is left".to_owned() });
        };
        self.state.count(|cluster| cluster.next_pid = Pid(next));
        let lease_ms = granted(lease_ms, self.config.space_lease_ms_min);
        self.state.put(Record::Space { pid, space: SpaceRecord::new(keys, maker, lease_ms) });
        self.renew(pid);
        Ok(Answer::SpaceCreated { pid, region_bytes, lease_ms })
    }

    /// Begins the lease of a space anew.
    fn renew(&mut self, pid: Pid) {
        if let Some(space) = self.state.spaces.get(&pid) {
            self.leases.renew(pid, space.lease_ms);
        }
    }

    fn locate(&self, pid: Pid, key: Key, region: u32) -> Result<Answer, Refusal> {
        let rights = self.rights(pid, key)?;
        let record = self.state.regions.get(&(pid, region)).ok_or(Refusal::NoRegion { pid, region })?;
        let node = record.owner;
        if self.is_lost(node) {
            return Err(Refusal::RegionLost { pid, region, node, url: self.state.url(node) });
        }
        let placement = self.placement(pid, region, |capabilities| capabilities.with(rights));
        placement.map(Answer::Located).ok_or(Refusal::NoRegion { pid, region })
    }

    fn note_protection(&mut self, pid: Pid, pages_below: u64) -> Answer {
        if pages_below == 0 {
            self.pages_below.remove(&pid);
        } else {
            self.pages_below.insert(pid, pages_below);
        }
        Answer::Noted
    }

    /// The space is gone at once; its nodes are told until they say that they have ended it. A lost node would be told
    /// when it comes back.
    pub(crate) fn destroy_space(&mut self, pid: Pid) -> Answer {
        self.state.delete(RecordKey::Space(pid));
        self.leases.forget(pid);
        self.pages_below.remove(&pid);
        let regions: Vec<u32> = self.state.regions_of(pid).map(|(region, _)| region).collect();
        self.state.delete_regions(pid);
        for region in regions {
            self.usage.remove(&(pid, region));
        }
        let nodes: Vec<NodeId> = self
            .state
            .presences
            .range((pid, NodeId(0))..=(pid, NodeId(u64::MAX)))
            .map(|((_, node), _)| *node)
            .collect();
        for node in nodes {
            if self.is_lost(node) {
                self.state.delete(RecordKey::Presence(pid, node));
            } else {
                self.state.put_presence(pid, node, Presence::Ending);
                self.command(node, Command::DestroySpace { pid });
            }
        }
        for waiting in self.take_waiting(|waiting| waiting.pid == pid) {
            self.actions.answers.push((waiting.ticket, Answer::Refused(Refusal::BadKey { pid })));
        }
        Answer::Destroyed
    }

    fn drain(&mut self, name: &str) -> Result<Answer, Refusal> {
        let node = self.node_named(name)?;
        if self.state.nodes[&node].duty == Duty::Serving {
            self.set_duty(node, Duty::Draining);
        }
        Ok(Answer::Draining { regions_left: self.regions_left(node) })
    }

    /// The node with this number, name or URL. Of several with one URL it is the one that is there.
    fn node_named(&self, name: &str) -> Result<NodeId, Refusal> {
        let is_named = |node: &NodeId| node.to_string() == name || self.state.nodes[node].facts.is_called(name);
        let order = |node: &NodeId| match self.live[node].link {
            Link::Connected => 0,
            Link::Silent => 1,
            Link::Lost => 2,
        };
        let named = self.state.nodes.keys().filter(|node| is_named(node)).min_by_key(|node| order(node));
        named.copied().ok_or_else(|| Refusal::NoNode { name: name.to_owned() })
    }

    fn nodes(&self) -> Answer {
        let fullness = self.fullness();
        Answer::Nodes(self.state.nodes.keys().map(|node| self.view(*node, &fullness)).collect())
    }

    fn view(&self, node: NodeId, fullness: &Fullness) -> NodeView {
        let record = &self.state.nodes[&node];
        let live = &self.live[&node];
        let load = fullness.load(node);
        let condition = match (live.link, record.duty) {
            (Link::Lost, _) => NodeCondition::Lost,
            (Link::Silent, _) => NodeCondition::Silent,
            (Link::Connected, Duty::Serving) => NodeCondition::Serving,
            (Link::Connected, Duty::Draining) => NodeCondition::Draining,
            (Link::Connected, Duty::Drained) => NodeCondition::Drained,
        };
        NodeView {
            node,
            name: record.facts.name.clone(),
            urls: record.facts.urls.clone(),
            domains: record.facts.domains.clone(),
            condition,
            memory_bytes: record.facts.memory_bytes,
            free_bytes: live.free_bytes.unwrap_or(0),
            committed_bytes: load.committed(),
            regions: load.regions,
            regions_leaving: load.regions_leaving,
        }
    }

    fn spaces(&self, from: Pid) -> Answer {
        let (mut spaces, mut listed) = (Vec::new(), 0);
        for pid in self.state.spaces.range(from..).map(|(pid, _)| *pid) {
            let view = self.space_view(pid);
            listed += 1 + view.nodes.len();
            if listed > SPACES_PER_ANSWER_MAX && !spaces.is_empty() {
                return Answer::Spaces { spaces, next: Some(pid) };
            }
            spaces.push(view);
        }
        Answer::Spaces { spaces, next: None }
    }

    fn space_view(&self, pid: Pid) -> SpaceView {
        let mut nodes = BTreeSet::new();
        let (mut regions, mut allocated_bytes) = (0, 0u64);
        let mut missing = BTreeMap::new();
        for (region, record) in self.state.regions_of(pid) {
            nodes.insert(record.owner);
            if let Some(group) = record.group {
                let is_there = u32::from(!self.is_lost(record.owner));
                let left: &mut u32 = missing.entry(group.number).or_insert(group.places);
                *left = left.saturating_sub(is_there);
            }
            regions += 1;
            let allocated = self.usage[&(pid, region)].allocated(self.config.region_bytes);
            allocated_bytes = allocated_bytes.saturating_add(allocated);
        }
        let tenant = match &self.state.spaces[&pid].maker {
            Some(Maker::Tenant(name)) => Some(name.clone()),
            Some(Maker::Source(_)) | None => None,
        };
        let groups_below = missing.values().filter(|missing| **missing > 0).count() as u64;
        let pages_below = self.pages_below.get(&pid).copied().unwrap_or(0);
        let nodes = nodes.into_iter().collect();
        let is_early = self.leases.clock.shown() < self.heard_of_pages_at && !self.pages_below.contains_key(&pid);
        let is_pages_below_unknown = is_early && !missing.is_empty();
        SpaceView { pid, regions, allocated_bytes, nodes, tenant, groups_below, pages_below, is_pages_below_unknown }
    }
}
