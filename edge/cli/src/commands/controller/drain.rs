//! `yonder controller drain`: begins a drain, and watches it until nothing is left on the node.
//!
//! The drain is the controller's: it goes on whatever becomes of who watches it. [`Watch`] turns what the controller
//! says of the node into what to tell, so it is tested without a controller.

use std::io::IsTerminal as _;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::bail;
use yonder_placement::{NodeCondition, NodeId, NodeView};

use super::{ANSWER_TIMEOUT, client};
use crate::args::DrainArgs;
use crate::output::{Bar, line};

/// How often the controller is asked.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long there may be no controller: it is started again, or another one takes over when its lease is over.
const TAKEOVER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long nothing moves before this is worth a word: longer than a move that failed rests.
const STALL: Duration = Duration::from_secs(10);

pub(super) fn run(args: &DrainArgs) -> anyhow::Result<()> {
    let (name, controller) = (&args.named.node, &args.named.controller);
    let (stop, stopped) = mpsc::channel();
    ctrlc::set_handler(move || {
        let _ = stop.send(());
    })?;
    let mut watch = Watch::new(name, Instant::now());
    // Before anything has moved.
    watch.begin(&client(controller, ANSWER_TIMEOUT)?.nodes()?);
    client(controller, ANSWER_TIMEOUT)?.start_drain(&watch.to_drain())?;
    let mut client = client(controller, TAKEOVER_TIMEOUT)?;
    let progress = Progress::new();
    progress.show(0, watch.most);
    loop {
        match watch.look(&client.nodes()?, Instant::now()) {
            Seen::Drained { total } => {
                progress.show(total, total);
                break;
            }
            Seen::Failed(cause) => bail!("{cause}"),
            Seen::Moving { moved, total } => progress.show(moved, total),
            Seen::Stalled { cause } => progress.say(&cause),
            Seen::AsBefore => {}
        }
        match stopped.recv_timeout(LOOK_EVERY) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => bail!(
                "{} regions are still on {name}, and the drain goes on: type the same command to wait for it, or \
                 `yonder controller undrain {name} --at {}` to end it",
                watch.left,
                controller.at
            ),
        }
    }
    drop(progress);
    line(&format!("{name} is drained: it has no regions, and gets none"))
}

/// What a look at the node shows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    /// Nothing is left on it, of so many regions that it had.
    Drained { total: u64 },
    /// It will not be drained, for this reason.
    Failed(String),
    /// So many regions of so many have moved.
    Moving { moved: u64, total: u64 },
    /// No region has moved for long.
    Stalled { cause: String },
    /// Nothing that was not last_report.
    AsBefore,
}

/// One node that is drained, and what was last_report of it.
pub(crate) struct Watch {
    /// As it was typed.
    name: String,
    /// Found at the first look.
    node: Option<NodeId>,
    left: u64,
    most: u64,
    /// Whether `left` is known.
    has_looked: bool,
    /// When something was last_report last.
    last_report: Instant,
}

impl Watch {
    pub(crate) fn new(name: &str, now: Instant) -> Self {
        Self { name: name.to_owned(), node: None, left: 0, most: 0, has_looked: false, last_report: now }
    }

    /// How many regions the node has that will be drained, if it is there.
    pub(crate) fn begin(&mut self, nodes: &[NodeView]) {
        let is_there = |view: &&NodeView| view.condition != NodeCondition::Lost;
        let Some(view) = named(nodes, &self.name).filter(is_there) else { return };
        (self.node, self.has_looked) = (Some(view.node), true);
        (self.left, self.most) = (view.regions, view.regions);
    }

    /// What the controller is asked to drain: the node that is watched, although another one may have its name by then.
    fn to_drain(&self) -> String {
        self.node.map_or_else(|| self.name.clone(), |node| node.to_string())
    }

    pub(crate) fn look(&mut self, nodes: &[NodeView], now: Instant) -> Seen {
        let name = &self.name;
        let found = match self.node {
            Some(node) => nodes.iter().find(|view| view.node == node),
            None => named(nodes, name),
        };
        // A lost node without regions is forgotten.
        let Some(view) = found else { return Seen::Drained { total: self.most } };
        self.node = Some(view.node);
        match view.condition {
            NodeCondition::Drained => return Seen::Drained { total: self.most },
            NodeCondition::Serving => {
                return Seen::Failed(format!("{name} is not drained any more: somebody has typed undrain"));
            }
            NodeCondition::Lost => {
                let regions = view.regions;
                return Seen::Failed(format!(
                    "{name} has not answered for a whole lease, with {regions} regions on it: connect it again if its process \
                     still runs; else they are lost"
                ));
            }
            NodeCondition::Draining | NodeCondition::Silent => {}
        }
        if !self.has_looked || view.regions != self.left {
            (self.has_looked, self.left, self.last_report) = (true, view.regions, now);
            self.most = self.most.max(view.regions);
            return Seen::Moving { moved: self.most - self.left, total: self.most };
        }
        if now.saturating_duration_since(self.last_report) < STALL {
            return Seen::AsBefore;
        }
        self.last_report = now;
        Seen::Stalled { cause: held_up_by(view, name) }
    }
}

/// Why a node that is drained is not yet, if nothing moves for long.
pub(crate) fn held_up_by(view: &NodeView, name: &str) -> String {
    if view.condition == NodeCondition::Silent {
        format!("{name} is not connected to the controller; waiting for it")
    } else if view.regions_leaving > 0 {
        format!("a region of {name} is still moving; waiting for it")
    } else {
        format!("no other node has room for what is on {name}; start one, or free memory")
    }
}

/// The node with this number, name or URL. Of several with one URL it is the one that is there, as the controller
/// takes it.
pub(crate) fn named<'nodes>(nodes: &'nodes [NodeView], name: &str) -> Option<&'nodes NodeView> {
    let is_named = |view: &&NodeView| {
        view.node.to_string() == name || view.name.as_deref() == Some(name) || view.urls.iter().any(|url| url == name)
    };
    nodes.iter().filter(is_named).min_by_key(|view| match view.condition {
        NodeCondition::Serving | NodeCondition::Draining | NodeCondition::Drained => 0,
        NodeCondition::Silent => 1,
        NodeCondition::Lost => 2,
    })
}

/// A bar on a terminal, lines elsewhere.
enum Progress {
    Bar(Bar),
    Lines,
}

impl Progress {
    fn new() -> Self {
        if std::io::stderr().is_terminal() { Self::Bar(Bar::new("drain")) } else { Self::Lines }
    }

    /// A node that had nothing needs no word but that it is drained.
    fn show(&self, moved: u64, total: u64) {
        if total == 0 {
            return;
        }
        let text = format!("{moved} of {total} regions moved");
        match self {
            Self::Bar(bar) => bar.show(&text, moved as f64 / total as f64),
            Self::Lines => self.say(&text),
        }
    }

    fn say(&self, text: &str) {
        let tell = || eprintln!("yonder controller: {text}");
        match self {
            Self::Bar(bar) => bar.beside(tell),
            Self::Lines => tell(),
        }
    }
}

#[cfg(test)]
mod tests {
    use yonder_placement::Domains;

    use super::*;

    fn view(node: u64, condition: NodeCondition, regions: u64) -> NodeView {
        NodeView {
            node: NodeId(node),
            name: None,
            urls: vec!["tcp://10.0.0.2:7000".to_owned()],
            domains: Domains::default(),
            condition,
            memory_bytes: 1 << 30,
            free_bytes: 0,
            committed_bytes: 0,
            regions,
            regions_leaving: 0,
        }
    }

    #[test]
    fn regions_are_counted_down_to_none() {
        let now = Instant::now();
        let mut watch = Watch::new("tcp://10.0.0.2:7000", now);
        let draining = |regions| [view(1, NodeCondition::Lost, 7), view(2, NodeCondition::Draining, regions)];
        assert_eq!(watch.look(&draining(3), now), Seen::Moving { moved: 0, total: 3 });
        assert_eq!(watch.look(&draining(3), now), Seen::AsBefore);
        assert_eq!(watch.look(&draining(2), now), Seen::Moving { moved: 1, total: 3 });
        // A move to the node that was under way has ended.
        assert_eq!(watch.look(&draining(4), now), Seen::Moving { moved: 0, total: 4 });
        assert_eq!(watch.look(&draining(0), now), Seen::Moving { moved: 4, total: 4 });
        assert_eq!(watch.look(&[view(2, NodeCondition::Drained, 0)], now), Seen::Drained { total: 4 });
        assert_eq!(watch.look(&[], now), Seen::Drained { total: 4 });
    }

    /// Some may have moved before the first look.
    #[test]
    fn regions_are_counted_from_before_the_drain() {
        let now = Instant::now();
        let mut watch = Watch::new("0000000000000002", now);
        watch.begin(&[view(1, NodeCondition::Serving, 7), view(2, NodeCondition::Serving, 6)]);
        assert_eq!(watch.look(&[view(2, NodeCondition::Draining, 6)], now), Seen::AsBefore);
        assert_eq!(watch.look(&[view(2, NodeCondition::Draining, 4)], now), Seen::Moving { moved: 2, total: 6 });
        assert_eq!(watch.look(&[view(2, NodeCondition::Drained, 0)], now), Seen::Drained { total: 6 });
        let mut watch = Watch::new("0000000000000002", now);
        watch.begin(&[view(2, NodeCondition::Lost, 6)]);
        assert_eq!(watch.most, 0, "it will not be drained");
    }

    /// Another one may have its address a moment later, and would be drained in its place.
    #[test]
    fn what_is_watched_is_what_is_drained() {
        let url = "tcp://10.0.0.2:7000";
        let mut watch = Watch::new(url, Instant::now());
        assert_eq!(watch.to_drain(), url, "the controller says what is wrong with it");
        watch.begin(&[view(1, NodeCondition::Silent, 7)]);
        assert_eq!(watch.to_drain(), "0000000000000001");
    }

    #[test]
    fn a_node_without_regions_is_drained_at_once() {
        let now = Instant::now();
        let mut watch = Watch::new("0000000000000002", now);
        assert_eq!(watch.look(&[view(2, NodeCondition::Drained, 0)], now), Seen::Drained { total: 0 });
    }

    #[test]
    fn a_drain_that_stalls_says_why_and_not_too_often() {
        let start = Instant::now();
        let mut watch = Watch::new("0000000000000002", start);
        let draining = [view(2, NodeCondition::Draining, 3)];
        assert_eq!(watch.look(&draining, start), Seen::Moving { moved: 0, total: 3 });
        assert_eq!(watch.look(&draining, start + STALL / 2), Seen::AsBefore);
        let stalled = watch.look(&draining, start + STALL);
        assert!(matches!(&stalled, Seen::Stalled { cause } if cause.contains("room")), "{stalled:?}");
        assert_eq!(watch.look(&draining, start + STALL), Seen::AsBefore);
        let silent = watch.look(&[view(2, NodeCondition::Silent, 3)], start + 2 * STALL);
        assert!(matches!(&silent, Seen::Stalled { cause } if cause.contains("not connected")), "{silent:?}");
    }

    #[test]
    fn a_drain_that_cannot_end_fails() {
        let now = Instant::now();
        for condition in [NodeCondition::Serving, NodeCondition::Lost] {
            let mut watch = Watch::new("0000000000000002", now);
            watch.look(&[view(2, NodeCondition::Draining, 1)], now);
            let seen = watch.look(&[view(2, condition, 1)], now);
            assert!(matches!(seen, Seen::Failed(_)), "{seen:?}");
        }
    }
}
