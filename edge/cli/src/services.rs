//! The services for systemd in `edge/cli/systemd`, as far as this crate can tell that they are right: what they start
//! is a command that there is, with flags that it has, and servers may do little and serve members alone. `testing/e2e`
//! asks systemd.

use std::collections::BTreeMap;

use clap::Parser as _;

use crate::args::{Cli, Command};

/// Where a service finds its identity, once systemd has handed it over.
const IDENTITY: &str = "/run/credentials/service/identity.pem";

const SERVICES: [(&str, &str); 3] = [
    ("controller", include_str!("../systemd/yonder-controller.service")),
    ("governor", include_str!("../systemd/yonder-governor.service")),
    ("node", include_str!("../systemd/yonder-node.service")),
];

/// The settings of a service, by section and name; those that are given more than once are joined by spaces.
fn parse(service: &str) -> BTreeMap<(String, String), String> {
    let (mut section, mut settings) = (String::new(), BTreeMap::new());
    for line in service.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.to_owned();
            continue;
        }
        let (name, value) = line.split_once('=').unwrap_or_else(|| panic!("'{line}' is no setting"));
        assert!(name.chars().all(char::is_alphanumeric) && !section.is_empty(), "'{line}' is no setting");
        let values: &mut String = settings.entry((section.clone(), name.to_owned())).or_default();
        if !values.is_empty() {
            values.push(' ');
        }
        values.push_str(value);
    }
    settings
}

/// What the service starts, with the flags that it has unless a file says others.
fn started(service: &str) -> Vec<String> {
    let settings = parse(service);
    let value = |name: &str| settings.get(&("Service".to_owned(), name.to_owned())).cloned().unwrap_or_default();
    let mut line = value("ExecStart").replace("${STATE_DIRECTORY}", "/var/lib/yonder");
    if let Some((name, path)) = value("LoadCredential").split_once(':') {
        line = line.replace(&format!("${{CREDENTIALS_DIRECTORY}}/{name}"), IDENTITY);
        // Who has not made it yet is told so, and the service is not started again and again.
        assert_eq!(settings[&("Unit".to_owned(), "AssertPathExists".to_owned())], path);
    }
    if let Some((name, flags)) = value("Environment").trim_matches('"').split_once('=') {
        assert!(line.contains(&format!("${name}")), "'{line}' does not use {name}");
        line = line.replace(&format!("${name}"), flags);
    }
    assert!(!line.contains('$'), "'{line}' uses what is not set");
    line.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn services_start_commands_with_flags_that_there_are() {
    for (name, service) in SERVICES {
        let words = started(service);
        assert_eq!(words[..2], ["@PREFIX@/bin/yonder", name]);
        let cli = Cli::try_parse_from(&words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
        let is_right = match &cli.command.expect("it is named") {
            Command::Node(args) => {
                // What it may not do, and what only root could.
                assert!(!args.sandbox.no_sandbox && args.sandbox.user.user.is_none());
                let addresses = args.listen.0.iter().filter_map(yonder_node::Listen::socket_address);
                args.open.check(addresses).expect("only this machine reaches it, unless a file says otherwise");
                name == "node"
            }
            Command::Controller(args) => {
                assert!(args.what.is_none() && args.serve.state.starts_with("/var/lib/yonder"));
                name == "controller"
            }
            Command::Governor(_) => name == "governor",
            _ => false,
        };
        assert!(is_right, "{words:?}");
    }
}

#[test]
fn servers_serve_members_alone_and_no_example_opens_one_to_all() {
    for (name, service) in SERVICES {
        assert!(!service.contains("--open"), "{name}");
        let credential = match Cli::try_parse_from(started(service)).expect("see above").command.expect("it is named") {
            Command::Node(args) => args.credential,
            Command::Controller(args) => args.serve.credential,
            // It listens nowhere.
            _ => continue,
        };
        assert_eq!(credential.identity.as_deref(), Some(std::path::Path::new(IDENTITY)), "{name}");
    }
}

/// What the node's threads ask for after they have started, and its own filter allows.
#[test]
fn the_filter_of_the_node_has_what_its_threads_need() {
    let node = include_str!("../systemd/yonder-node.service");
    let filters = || node.lines().filter_map(|line| line.strip_prefix("SystemCallFilter="));
    let denied = filters().position(|filter| filter.starts_with('~')).expect("some are denied");
    let allowed: Vec<&str> = filters().skip(denied + 1).flat_map(str::split_whitespace).collect();
    assert_eq!(allowed, ["setpriority", "sched_setaffinity"]);
}

#[test]
fn servers_that_others_reach_have_nothing_that_they_do_not_need() {
    const HELD: [(&str, &str); 12] = [
        ("DynamicUser", "yes"),
        ("NoNewPrivileges", "yes"),
        ("CapabilityBoundingSet", ""),
        ("ProtectSystem", "strict"),
        ("ProtectHome", "yes"),
        ("PrivateTmp", "yes"),
        ("PrivateDevices", "yes"),
        ("MemoryDenyWriteExecute", "yes"),
        ("RestrictAddressFamilies", "AF_INET AF_INET6 AF_UNIX"),
        ("SystemCallArchitectures", "native"),
        ("LimitCORE", "0"),
        ("UMask", "0077"),
    ];
    for (name, service) in SERVICES.iter().filter(|(name, _)| *name != "governor") {
        let settings = parse(service);
        for (setting, wanted) in HELD {
            let found = settings.get(&("Service".to_owned(), setting.to_owned()));
            assert_eq!(found.map(String::as_str), Some(wanted), "{setting} of {name}");
        }
        assert!(settings.contains_key(&("Service".to_owned(), "SystemCallFilter".to_owned())));
        assert!(!settings.contains_key(&("Service".to_owned(), "ExecStartPre".to_owned())));
    }
}
