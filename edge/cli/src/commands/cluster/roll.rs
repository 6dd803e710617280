//! `yonder cluster roll`: restarts all nodes of a cluster, and its controllers, one after the other, while programs use
//! them.
//!
//! A node is drained first, so that nothing is on it, and the next one's turn comes when another incarnation serves in
//! its place and the cluster is well. Nothing is kept between runs: what is left is named when it stops, and may be
//! restarted twice. [`watch`] waits, [`restart`] is what is typed into a shell, [`steps`] what is told.

mod restart;
mod steps;
mod watch;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, anyhow, bail, ensure};
use yonder_placement::{NodeCondition, NodeId, NodeView};

use self::restart::{Target, Template};
use self::steps::{Report, Step, Subject, label};
use self::watch::{Cluster, Look, Watcher};
use crate::args::RollArgs;
use crate::commands::controller::{ANSWER_TIMEOUT, is_well};
use crate::commands::controller::{Seen, Watch, client, complaints, held_up_by, named};

pub(super) fn run(args: &RollArgs) -> anyhow::Result<ExitCode> {
    let mut roll = Roll::new(args)?;
    // A controller that is not there is not waited for.
    roll.watcher.look()?;
    // Before nodes are chosen, so that those that have ended are not among them.
    if let Err(error) = roll.until_well() {
        let cause = format!("{error:#}");
        roll.report.step(&Step::Failed { cause: &cause, left: &args.only })?;
        return Err(anyhow!("{cause}; nothing was restarted: mend that, and type the same command again"));
    }
    roll.choose()?;
    match roll.all() {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            let (cause, left) = (format!("{error:#}"), roll.left());
            roll.report.step(&Step::Failed { cause: &cause, left: &left })?;
            Err(anyhow!("{cause}; {}", roll.how_to_go_on(&left)))
        }
    }
}

/// What is still to be restarted, and how.
struct Roll<'args> {
    args: &'args RollArgs,
    watcher: Watcher,
    report: Report,
    nodes: Vec<NodeView>,
    /// Addresses: those that wait to lead first.
    controllers: Vec<String>,
    restart: Option<Template>,
    restart_controller: Option<Template>,
}

impl<'args> Roll<'args> {
    fn new(args: &'args RollArgs) -> anyhow::Result<Self> {
        let watcher = Watcher::new(client(&args.controller, ANSWER_TIMEOUT)?, args.timeout)?;
        let parse = |flag, text: &Option<String>| text.as_ref().map(|text| Template::new(flag, text));
        Ok(Self {
            args,
            watcher,
            report: Report { json: args.json },
            nodes: Vec::new(),
            controllers: Vec::new(),
            restart: parse("--restart", &args.restart),
            restart_controller: parse("--restart-controller", &args.restart_controller),
        })
    }

    /// Looks at what there is to restart, and whether it can be.
    fn choose(&mut self) -> anyhow::Result<()> {
        let (nodes, at) = (self.watcher.look()?.nodes, &self.args.controller.at);
        let addresses: Vec<String> = at.each().map(str::to_owned).collect();
        (self.nodes, self.controllers) =
            chosen(&self.args.only, &nodes, &addresses, self.restart_controller.is_some())?;
        ensure!(
            !self.nodes.is_empty() || !self.controllers.is_empty(),
            "there is no node to restart: start one with `yonder node --controller {at} ...`"
        );
        self.check_commands()
    }

    /// Whether each command can be made, before the first node is drained for it.
    fn check_commands(&self) -> anyhow::Result<()> {
        if let Some(template) = &self.restart {
            template.check_for(self.nodes.len())?;
            self.nodes.iter().try_for_each(|node| template.filled(&Target::of_node(node)).map(drop))?;
        }
        if let Some(template) = &self.restart_controller {
            template.check_for(self.controllers.len())?;
            self.controllers.iter().try_for_each(|at| template.filled(&Target::of_controller(at)).map(drop))?;
        }
        Ok(())
    }

    fn all(&mut self) -> anyhow::Result<()> {
        let (nodes, controllers) = (self.nodes.len(), self.controllers.len());
        self.report.step(&Step::Begin { nodes, controllers })?;
        while let Some(node) = self.nodes.first().cloned() {
            self.restart_node(&node)?;
            self.until_well()?;
        }
        // Which one leads may have changed since.
        let leads: Vec<bool> = self.controllers.clone().iter().map(|at| self.leads(at)).collect::<Result<_, _>>()?;
        let mut order: Vec<(bool, String)> = leads.into_iter().zip(std::mem::take(&mut self.controllers)).collect();
        order.sort_by_key(|(leads, _)| *leads);
        self.controllers = order.into_iter().map(|(_, at)| at).collect();
        while let Some(at) = self.controllers.first().cloned() {
            self.restart_controller(&at)?;
            self.until_well()?;
        }
        self.report.step(&Step::Done { nodes, controllers })
    }

    /// One node, from its drain until another incarnation serves. It is not left any more then.
    fn restart_node(&mut self, node: &NodeView) -> anyhow::Result<()> {
        let before = self.watcher.look()?.nodes;
        if let Some(new) = successor(&before, node, &BTreeSet::from([node.node])) {
            self.report.step(&Step::Back { node: Subject::of(new), was: node.node })?;
            self.nodes.remove(0);
            return Ok(());
        }
        self.drain(node, &before)?;
        let known: BTreeSet<NodeId> = before.iter().map(|view| view.node).collect();
        self.report.step(&Step::Restart { node: Subject::of(node), by_hand: self.restart.is_none() })?;
        if let Some(template) = &self.restart {
            let command = template.filled(&Target::of_node(node))?;
            restart::run(&command, &self.watcher.stopped, self.args.timeout)?;
        }
        let is_by_hand = self.restart.is_none();
        let new = self.watcher.wait(|cluster| came_back(&cluster.nodes, node, &known, is_by_hand))?;
        self.nodes.remove(0);
        if matches!(new.condition, NodeCondition::Draining | NodeCondition::Drained) {
            self.watcher.client.undrain(&new.node.to_string())?;
        }
        self.report.step(&Step::Back { node: Subject::of(&new), was: node.node })
    }

    /// Waits until nothing is on the node. One that cannot be drained may have regions again.
    fn drain(&mut self, node: &NodeView, before: &[NodeView]) -> anyhow::Result<()> {
        let name = label(node);
        let can_take = |view: &NodeView| view.node != node.node && view.condition == NodeCondition::Serving;
        let now = before.iter().find(|view| view.node == node.node).unwrap_or(node);
        ensure!(
            now.regions == 0 || before.iter().any(can_take),
            "{name} has {} regions, and there is no other node that could take them: start one",
            now.regions
        );
        let mut watch = Watch::new(&name, Instant::now());
        watch.begin(before);
        self.report.step(&Step::Drain { node: Subject::of(now) })?;
        self.watcher.client.start_drain(&now.node.to_string())?;
        let drained = self.watcher.wait(|cluster| {
            let left = |view: &NodeView| (view.node == node.node).then_some((view.regions, held_up_by(view, &name)));
            let (left, why) = cluster.nodes.iter().find_map(left).unwrap_or_default();
            match watch.look(&cluster.nodes, Instant::now()) {
                Seen::Drained { .. } => Look::Done(()),
                Seen::Failed(cause) => Look::Failed(cause),
                Seen::Moving { moved, total } => {
                    Look::Waits { left, why, tell: Some(format!("{name}: {moved} of {total} regions moved")) }
                }
                Seen::Stalled { cause } => Look::Waits { left, tell: Some(cause.clone()), why: cause },
                Seen::AsBefore => Look::Waits { left, why, tell: None },
            }
        });
        if let Err(error) = drained {
            // Somebody has drained it before: it stays as it was.
            if now.condition == NodeCondition::Serving {
                self.watcher.client.undrain(&now.node.to_string()).context(format!("{error:#}"))?;
                bail!("{error:#} ({name} may have regions again)");
            }
            return Err(error);
        }
        self.report.step(&Step::Drained { node: Subject::of(node) })
    }

    /// Whether the controller at an address is the one that serves. Those that wait to lead have no socket yet.
    fn leads(&self, at: &str) -> anyhow::Result<bool> {
        if self.args.controller.at.each().count() == 1 {
            return Ok(true);
        }
        let mut own = self.watcher.client.only_at(at);
        Ok(own.nodes().is_ok())
    }

    /// One controller, until the one that serves knows all nodes.
    fn restart_controller(&mut self, at: &str) -> anyhow::Result<()> {
        let template = self.restart_controller.as_ref().context("no --restart-controller")?;
        let command = template.filled(&Target::of_controller(at))?;
        let leads = self.leads(at)?;
        self.report.step(&Step::RestartController { controller: at, leads })?;
        // Over a connection that ends with the controller.
        let served = self.watcher.look()?.serving();
        let connection = self.watcher.client.connections();
        restart::run(&command, &self.watcher.stopped, self.args.timeout)?;
        if leads {
            // Each look asks over the connection there is.
            let is_another = |client: &yonder_controller::ControllerClient| client.connections() > connection;
            self.watcher.wait_with(|cluster, client| match is_another(client) {
                true => missing(&served, cluster),
                false => {
                    waits(format!("the controller at {at} has not ended: see that --restart-controller restarts it"))
                }
            })?;
        } else {
            self.watcher.wait(|cluster| missing(&served, cluster))?;
        }
        self.controllers.remove(0);
        self.report.step(&Step::ControllerBack { controller: at })
    }

    fn until_well(&mut self) -> anyhow::Result<()> {
        self.watcher.wait(|cluster| {
            if is_well(&cluster.nodes, &cluster.spaces) {
                return Look::Done(());
            }
            let why = complaints(&cluster.nodes, &cluster.spaces).into_iter().next().unwrap_or_default();
            Look::Waits { left: cluster.lacks(), tell: Some(why.clone()), why }
        })
    }

    /// What was not restarted.
    fn left(&self) -> Vec<String> {
        self.nodes.iter().map(label).chain(self.controllers.iter().cloned()).collect()
    }

    fn how_to_go_on(&self, left: &[String]) -> String {
        let at = &self.args.controller.at;
        if left.is_empty() {
            return format!("all are restarted: type `yonder controller health --at {at}` to see whether all is well");
        }
        format!("type the same command with --only {} to go on", left.join(","))
    }
}

/// The nodes and controllers to restart: all, or those that are named. Controllers only if there is a command for them.
fn chosen(
    only: &[String],
    nodes: &[NodeView],
    at: &[String],
    has_command: bool,
) -> anyhow::Result<(Vec<NodeView>, Vec<String>)> {
    if only.is_empty() {
        // Those that are drained first: they are what an earlier run has stopped at.
        let mut nodes = nodes.to_vec();
        nodes.sort_by_key(|node| !matches!(node.condition, NodeCondition::Draining | NodeCondition::Drained));
        return Ok((nodes, if has_command { at.to_vec() } else { Vec::new() }));
    }
    let (mut some, mut controllers) = (Vec::new(), Vec::new());
    for name in only.iter().map(|name| name.trim()) {
        let address = at.iter().find(|address| address.as_str() == name.strip_prefix("tcp://").unwrap_or(name));
        match (named(nodes, name), address) {
            (Some(node), _) => some.push(node.clone()),
            (None, Some(address)) => {
                ensure!(has_command, "{name} is a controller: type --restart-controller COMMAND too");
                controllers.push(address.clone());
            }
            (None, None) => bail!(
                "'{name}' of --only is no node, and no controller of --at: type a number, name or URL that `yonder \
                 controller nodes` shows"
            ),
        }
    }
    Ok((some, controllers))
}

/// The incarnation that serves in the place of `old` and was not known before.
fn successor<'nodes>(nodes: &'nodes [NodeView], old: &NodeView, known: &BTreeSet<NodeId>) -> Option<&'nodes NodeView> {
    let is_its = |view: &NodeView| match &old.name {
        Some(name) => view.name.as_ref() == Some(name),
        None => view.urls.iter().any(|url| old.urls.contains(url)),
    };
    nodes.iter().find(|view| !known.contains(&view.node) && is_its(view) && is_connected(view))
}

fn is_connected(view: &NodeView) -> bool {
    !matches!(view.condition, NodeCondition::Silent | NodeCondition::Lost)
}

/// Whether a node is back that was drained. Where somebody restarts it by hand, nothing is late before it has ended.
fn came_back(nodes: &[NodeView], old: &NodeView, known: &BTreeSet<NodeId>, is_by_hand: bool) -> Look<NodeView> {
    if let Some(new) = successor(nodes, old, known) {
        return Look::Done(new.clone());
    }
    let name = label(old);
    let runs = nodes.iter().any(|view| view.node == old.node && is_connected(view));
    match (runs, is_by_hand) {
        (true, true) => Look::Idle,
        (true, false) => waits(format!("{name} has not ended: see that --restart restarts it")),
        (false, _) => waits(format!("{name} has ended, and none has registered in its place: start it again")),
    }
}

/// Whether all nodes are there that were.
fn missing(served: &BTreeSet<NodeId>, cluster: &Cluster) -> Look<()> {
    let there = cluster.serving();
    match served.iter().filter(|node| !there.contains(node)).count() {
        0 => Look::Done(()),
        count => Look::Waits {
            left: count as u64,
            why: format!("{count} nodes have not registered at the controller again: see that it has the same state"),
            tell: None,
        },
    }
}

fn waits<T>(why: String) -> Look<T> {
    Look::Waits { left: 0, why, tell: None }
}

#[cfg(test)]
mod tests;
