//! `yonder controller`: a controller until it is told to end, or what one asks of a controller that runs.
//!
//! `serve` runs one, `drain` empties a node, `health` says what is not well; the rest is one question each.

mod drain;
mod health;
mod serve;

use std::process::ExitCode;
use std::time::Duration;

use yonder::units::format_bytes;
use yonder_controller::ControllerClient;
use yonder_placement::{NodeCondition, NodeView, SpaceView, TenantView};

pub(crate) use self::drain::{Seen, Watch, held_up_by, named};
pub(crate) use self::health::{complaints, is_well};
use crate::args::{AtArgs, ControllerArgs, ControllerWhat, NodeNameArgs, NodesArgs, SpacesArgs, TenantsArgs};
use crate::output::{json_line, line};
use crate::table::{number, print, titled};

/// How long a controller that is asked may take: it may be starting.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Heads of what is shown of tenants. Work is time of a node's slow path and of offloads; shed requests are counted
/// since the nodes started.
const TENANT_TITLES: [&str; 9] =
    ["TENANT", "SPACES", "RESERVED", "MEMORY", "CONNECTIONS", "REQUESTS/S", "BYTES/S", "WORK MS/S", "SHED"];

pub(crate) fn run(args: &ControllerArgs) -> anyhow::Result<ExitCode> {
    match &args.what {
        None => serve::run(&args.serve)?,
        Some(ControllerWhat::Nodes(args)) => show_nodes(args)?,
        Some(ControllerWhat::Spaces(args)) => show_spaces(args)?,
        Some(ControllerWhat::Tenants(args)) => show_tenants(args)?,
        Some(ControllerWhat::Health(args)) => return health::run(args),
        Some(ControllerWhat::Drain(args)) => drain::run(args)?,
        Some(ControllerWhat::Undrain(args)) => undrain(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn client(args: &AtArgs, timeout: Duration) -> anyhow::Result<ControllerClient> {
    Ok(ControllerClient::new(&args.at.to_string(), timeout).with_credential(args.credential.of_client()?))
}

fn show_nodes(args: &NodesArgs) -> anyhow::Result<()> {
    let nodes = client(&args.controller, ANSWER_TIMEOUT)?.nodes()?;
    if args.json {
        return nodes.iter().try_for_each(json_line);
    }
    if nodes.is_empty() {
        let at = &args.controller.at;
        eprintln!("yonder controller: no node yet; start one with `yonder node --controller {at} ...`");
        return Ok(());
    }
    print(&nodes_table(&nodes))
}

/// A line of titles and one for each node.
fn nodes_table(nodes: &[NodeView]) -> Vec<Vec<String>> {
    let rows = nodes.iter().map(|node| {
        let used = match node.condition {
            // What it said last is old, or was said to an earlier controller.
            NodeCondition::Silent | NodeCondition::Lost => "unknown".to_owned(),
            NodeCondition::Serving | NodeCondition::Draining | NodeCondition::Drained => {
                format_bytes(node.memory_bytes.saturating_sub(node.free_bytes))
            }
        };
        vec![
            node.node.to_string(),
            node.name.clone().unwrap_or_else(|| "-".to_owned()),
            condition(node.condition).to_owned(),
            format!("{used} of {}", format_bytes(node.memory_bytes)),
            node.regions.to_string(),
            node.regions_leaving.to_string(),
            if node.domains.is_empty() { "-".to_owned() } else { node.domains.to_string() },
            node.urls.join(","),
        ]
    });
    titled(&["NODE", "NAME", "STATE", "USED", "REGIONS", "MOVING", "DOMAIN", "URLS"], rows)
}

fn condition(condition: NodeCondition) -> &'static str {
    match condition {
        NodeCondition::Serving => "serving",
        NodeCondition::Draining => "draining",
        NodeCondition::Drained => "drained",
        NodeCondition::Silent => "silent",
        NodeCondition::Lost => "lost",
    }
}

fn show_spaces(args: &SpacesArgs) -> anyhow::Result<()> {
    let spaces = client(&args.controller, ANSWER_TIMEOUT)?.spaces()?;
    if args.json {
        return spaces.iter().try_for_each(json_line);
    }
    if spaces.is_empty() {
        let at = &args.controller.at;
        eprintln!("yonder controller: no address space yet; a program makes one at controller://{at}");
        return Ok(());
    }
    print(&spaces_table(&spaces))
}

/// A line of titles and one for each address space.
fn spaces_table(spaces: &[SpaceView]) -> Vec<Vec<String>> {
    let rows = spaces.iter().map(|space| {
        let nodes: Vec<String> = space.nodes.iter().map(ToString::to_string).collect();
        let nodes = if nodes.is_empty() { "none".to_owned() } else { nodes.join(",") };
        let tenant = space.tenant.clone().unwrap_or_else(|| "-".to_owned());
        vec![space.pid.to_string(), tenant, space.regions.to_string(), format_bytes(space.allocated_bytes), nodes]
    });
    titled(&["PID", "TENANT", "REGIONS", "ALLOCATED", "NODES"], rows)
}

fn show_tenants(args: &TenantsArgs) -> anyhow::Result<()> {
    let tenants = client(&args.controller, ANSWER_TIMEOUT)?.tenants()?;
    if args.json {
        return tenants.iter().try_for_each(json_line);
    }
    if tenants.is_empty() {
        let at = &args.controller.at;
        eprintln!("yonder controller: no tenant yet; a program is one when it uses memory at controller://{at}");
        return Ok(());
    }
    print(&tenants_table(&tenants))
}

/// A line of titles and one for each tenant.
fn tenants_table(tenants: &[TenantView]) -> Vec<Vec<String>> {
    let rows = tenants.iter().map(|tenant| {
        vec![
            tenant.tenant.clone(),
            tenant.spaces.to_string(),
            format_bytes(tenant.reserved_bytes),
            format_bytes(tenant.memory_bytes),
            tenant.connections.to_string(),
            tenant.requests_per_s.to_string(),
            format_bytes(tenant.bytes_per_s),
            number(tenant.work_ns_per_s as f64 / 1e6, 1),
            tenant.shed.to_string(),
        ]
    });
    titled(&TENANT_TITLES, rows)
}

fn undrain(args: &NodeNameArgs) -> anyhow::Result<()> {
    client(&args.controller, ANSWER_TIMEOUT)?.undrain(&args.node)?;
    line(&format!("{} may have regions again", args.node))
}

#[cfg(test)]
mod tests {
    use yonder_placement::Domains;

    use super::*;
    use crate::table::aligned;

    #[test]
    fn nodes_are_a_table() {
        let view = |number: u64, condition| NodeView {
            node: yonder_placement::NodeId(number),
            name: (number == 0xa1).then(|| "n1".to_owned()),
            urls: vec!["udp://10.0.0.2:7000".to_owned(), "tcp://10.0.0.2:7000".to_owned()],
            domains: if number == 0xa1 { "rack=a,row=3".parse().unwrap() } else { Domains::default() },
            condition,
            memory_bytes: 4 << 30,
            free_bytes: 3 << 30,
            committed_bytes: 2 << 30,
            regions: 5,
            regions_leaving: 1,
        };
        let table = aligned(&nodes_table(&[view(0xa1, NodeCondition::Draining), view(0xa2, NodeCondition::Lost)]));
        assert_eq!(table.len(), 3);
        let words = |row: usize| table[row].split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words(0), "NODE NAME STATE USED REGIONS MOVING DOMAIN URLS");
        let (state, urls) = ("n1 draining 1 GiB of 4 GiB 5 1", "udp://10.0.0.2:7000,tcp://10.0.0.2:7000");
        assert_eq!(words(1), format!("00000000000000a1 {state} rack=a,row=3 {urls}"));
        assert!(words(2).starts_with("00000000000000a2 - lost unknown of 4 GiB"), "{}", words(2));
        let column = |row: usize, text: &str| table[row].find(text).unwrap();
        assert_eq!(column(0, "URLS"), column(1, "udp://"));
    }

    #[test]
    fn spaces_are_a_table() {
        let view = |pid, nodes: &[u64]| SpaceView {
            pid: yonder_placement::Pid(pid),
            regions: nodes.len() as u64,
            allocated_bytes: (nodes.len() as u64) << 29,
            nodes: nodes.iter().map(|node| yonder_placement::NodeId(*node)).collect(),
            tenant: nodes.is_empty().then(|| "app".to_owned()),
            groups_below: 0,
            pages_below: 0,
            is_pages_below_unknown: false,
        };
        let table = aligned(&spaces_table(&[view(1 << 31, &[0xa1, 0xa2, 0xa3]), view((1 << 31) + 1, &[])]));
        let words = |row: usize| table[row].split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words(0), "PID TENANT REGIONS ALLOCATED NODES");
        assert_eq!(words(1), "2147483648 - 3 1.5 GiB 00000000000000a1,00000000000000a2,00000000000000a3");
        assert_eq!(words(2), "2147483649 app 0 0 B none");
        assert_eq!(table[0].find("NODES"), table[1].find("00000000000000a1"));
    }

    fn tenant() -> TenantView {
        TenantView {
            tenant: "app".to_owned(),
            nodes: 2,
            spaces: 3,
            reserved_bytes: 4 << 30,
            memory_bytes: 3 << 29,
            connections: 8,
            requests_per_s: 12_345,
            bytes_per_s: 48 << 20,
            work_ns_per_s: 1_250_000,
            requests: 7,
            bytes: 8,
            work_ns: 9,
            shed: 10,
        }
    }

    #[test]
    fn tenants_are_a_table() {
        let idle = TenantView { tenant: "10.0.0.9".to_owned(), spaces: 1, ..TenantView::default() };
        let table = aligned(&tenants_table(&[tenant(), idle]));
        let words = |row: usize| table[row].split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words(0), "TENANT SPACES RESERVED MEMORY CONNECTIONS REQUESTS/S BYTES/S WORK MS/S SHED");
        assert_eq!(words(1), "app 3 4 GiB 1.5 GiB 8 12345 48 MiB 1.2 10");
        assert_eq!(words(2), "10.0.0.9 1 0 B 0 B 0 0 0 B 0.0 0");
    }

    /// Scripts read these names: the guide has them.
    #[test]
    fn a_tenant_has_the_fields_that_the_guide_says() {
        let expected = "{\"tenant\":\"app\",\"nodes\":2,\"spaces\":3,\"reserved_bytes\":4294967296,\
                        \"memory_bytes\":1610612736,\"connections\":8,\"requests_per_s\":12345,\
                        \"bytes_per_s\":50331648,\"work_ns_per_s\":1250000,\"requests\":7,\"bytes\":8,\
                        \"work_ns\":9,\"shed\":10}";
        assert_eq!(serde_json::to_string(&tenant()).unwrap(), expected);
    }
}
