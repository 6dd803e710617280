//! The dashboard for Grafana and the alerts for Prometheus in `edge/cli/monitoring`, and the page for browsers, as far
//! as this crate can tell that they are right: what they name is counted, and Prometheus' own tool takes the alerts.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

const DASHBOARD: &str = include_str!("../monitoring/yonder-dashboard.json");
const ALERTS: &str = include_str!("../monitoring/yonder-alerts.yml");
/// Where names of metrics are written that servers have.
const COUNTED: [&str; 7] = [
    include_str!("../../../tools/metrics/src/names.rs"),
    include_str!("../../../tools/metrics/src/render.rs"),
    include_str!("../../../tools/metrics/src/tenants.rs"),
    include_str!("commands/metrics.rs"),
    include_str!("commands/kv.rs"),
    include_str!("commands/node.rs"),
    include_str!("commands/controller/serve.rs"),
];
/// What begins names of metrics that a script puts together.
const PUT_TOGETHER: [&str; 4] =
    ["yonder_controller_nodes_", "yonder_controller_node_", "yonder_", "yonder_controller_tenant_"];

/// Names of metrics in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let is_part = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
    let starts = text.match_indices("yonder_").filter(|(at, _)| !text[..*at].ends_with(is_part));
    let name = |(at, _): (usize, &str)| {
        let rest = &text[at..];
        let name = &rest[..rest.find(|letter| !is_part(letter)).unwrap_or(rest.len())];
        name.strip_suffix("_bucket").unwrap_or(name)
    };
    starts.map(name).collect()
}

#[test]
fn what_is_named_is_counted() {
    let is_counted = |name: &str| COUNTED.iter().any(|text| text.contains(&format!("\"{name}\"")));
    let page = yonder_metrics::page::FILES.iter().map(|file| file.text);
    for text in [DASHBOARD, ALERTS].into_iter().chain(page) {
        for name in names(text).into_iter().filter(|name| !PUT_TOGETHER.contains(name)) {
            assert!(is_counted(name), "{name} is counted nowhere");
        }
    }
    assert!(names(ALERTS).len() > 10 && names(DASHBOARD).contains("yonder_fault_latency_seconds"));
}

#[test]
fn the_dashboard_is_json_and_each_panel_asks_something() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("it is JSON");
    let panels = dashboard["panels"].as_array().expect("a list");
    let mut ids = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64()), "{} has the number of another one", panel["title"]);
        let asks =
            panel["targets"].as_array().is_some_and(|targets| targets.iter().all(|target| target["expr"].is_string()));
        assert!(panel["type"] == "row" || asks, "{}", panel["title"]);
        let place = &panel["gridPos"];
        let number = |name: &str| place[name].as_u64().expect("a number");
        assert!(number("x") + number("w") <= 24, "{} is beside the page", panel["title"]);
    }
}

#[test]
fn prometheus_takes_the_alerts_and_they_say_what_they_should() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("monitoring");
    for (what, file) in [("check", "yonder-alerts.yml"), ("test", "yonder-alerts-test.yml")] {
        let mut command = Command::new("promtool");
        let Ok(output) = command.args([what, "rules"]).arg(file).current_dir(&folder).output() else {
            println!("SKIP: there is no promtool (apt-get install prometheus)");
            return;
        };
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    }
}

/// What dashboards ask is what Prometheus understands: as rules, which its tool reads.
#[test]
fn prometheus_understands_what_the_dashboard_asks() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("it is JSON");
    let targets = dashboard["panels"].as_array().into_iter().flatten().filter_map(|panel| panel["targets"].as_array());
    let asked = targets.flatten().filter_map(|target| target["expr"].as_str());
    let rule = |(number, asked): (usize, &str)| {
        let asked = asked.replace("$__rate_interval", "1m").replace("$__range", "1h").replace("$instance", ".*");
        format!("  - record: asked:{number}\n    expr: '{asked}'\n")
    };
    let rules: String = asked.enumerate().map(rule).collect();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("rules.yml");
    std::fs::write(&path, format!("groups:\n- name: asked\n  rules:\n{rules}")).expect("it is writable");
    let Ok(output) = Command::new("promtool").args(["check", "rules"]).arg(&path).output() else {
        println!("SKIP: there is no promtool (apt-get install prometheus)");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
