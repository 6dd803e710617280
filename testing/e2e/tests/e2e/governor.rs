//! `yonder governor`: programs get as much local memory as they need, of what there is for all, and have all of theirs
//! again when it ends.

use std::collections::BTreeMap;
use std::time::Instant;

use rustix::process::Signal;
use serde_json::Value;
use yonder_e2e::{Client, Content, Process, TIMEOUT, Together, Yonder};

const MIB: u64 = 1 << 20;
/// 12 MiB of items.
const CONTENT: Content = Content { name: "governed", keys: 12_000, value_bytes: 1024 };
/// More local memory than that.
const SERVER: [&str; 7] = ["kv", "--listen", "127.0.0.1:0", "--memory", "48MiB", "--local", "40MiB"];

fn govern(together: &Together, flags: &[&str]) -> Process {
    together.spawn(&[&["governor", "--least", "2MiB", "--json"], flags].concat())
}

fn number(object: &Value, name: &str) -> u64 {
    object[name].as_u64().unwrap_or_else(|| panic!("{name} is no number in {object}"))
}

/// What each process was given at each look of a governor that has ended.
fn looks(governor: Process) -> Vec<Value> {
    let ended = governor.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    ended.objects()
}

fn limit(together: &Together, server: &Process) -> u64 {
    let ended = together.run(&["ctl", "get", &server.pid().to_string(), "local", "--json"]);
    number(&ended.object(), "amount")
}

#[test]
fn two_servers_never_have_more_together_than_there_is() {
    let Some(yonder) = Yonder::ready() else { return };
    let together = yonder.together();
    let servers = [together.serve(&SERVER), together.serve(&SERVER)];
    let mut governor = govern(&together, &["--memory", "16MiB", "--weight", &format!("{}=3", servers[0].pid())]);
    governor.wait_for("\"answers\":true");
    let mut clients = servers.each_ref().map(|server| Client::connect(server.address()));
    clients.iter_mut().for_each(|client| client.fill(&CONTENT, 0..CONTENT.keys, 1));
    for _ in 0..2 {
        clients.iter_mut().for_each(|client| client.verify(&CONTENT, 0..CONTENT.keys, 1));
    }
    let looks = looks(governor);
    let (mut of_look, mut of_both) = (BTreeMap::new(), 0);
    // One that did not answer in time has what it had.
    for look in looks.iter().filter(|look| look["answers"] == true) {
        let (pid, limit) = (number(look, "pid"), number(look, "limit_bytes"));
        assert!(limit >= 2 * MIB, "{look}");
        if of_look.contains_key(&pid) {
            of_look.clear();
        }
        of_look.insert(pid, limit);
        assert!(of_look.values().sum::<u64>() <= 16 * MIB, "{of_look:?} of 16 MiB");
        of_both += u32::from(of_look.len() == 2);
    }
    assert!(of_both > 2, "{looks:?}");
    for (server, client) in servers.iter().zip(&mut clients) {
        assert_eq!(limit(&together, server), 40 * MIB, "it has what it was started with again");
        client.verify(&CONTENT, 0..CONTENT.keys, 1);
    }
    servers.into_iter().for_each(|server| assert_eq!(server.stop().code, Some(0)));
}

#[test]
fn a_server_that_is_stopped_holds_nobody_up_and_one_that_is_exempt_keeps_what_it_has() {
    let Some(yonder) = Yonder::ready() else { return };
    let together = yonder.together();
    let [stopped, exempt, other] = [(), (), ()].map(|()| together.serve(&SERVER));
    let [stopped_pid, exempt_pid, other_pid] = [&stopped, &exempt, &other].map(|server| server.pid().to_string());
    let mut governor = govern(&together, &["--memory", "64MiB", "--exempt", &exempt_pid]);
    governor.wait_for(&format!("\"pid\":{other_pid}"));
    stopped.signal(Signal::STOP);
    let silent = governor.wait_for("\"answers\":false");
    assert!(silent.contains(&format!("\"pid\":{stopped_pid},")), "{silent}");
    let mut client = Client::connect(other.address());
    client.fill(&CONTENT, 0..CONTENT.keys, 1);
    client.verify(&CONTENT, 0..CONTENT.keys, 1);
    assert_eq!(limit(&together, &exempt), 40 * MIB);
    let top = together.run(&["top", "--processes", "--once", "--interval", "100ms"]);
    let rows = |pid: &str| top.stdout.lines().filter(|line| line.trim_start().starts_with(pid)).count();
    assert_eq!([&stopped_pid, &exempt_pid, &other_pid].map(|pid| rows(pid)), [0, 1, 1], "{}", top.stdout);
    // What the stopped one may have is not given to others.
    assert!(limit(&together, &other) <= 64 * MIB - 2 * MIB);
    stopped.signal(Signal::CONT);
    // It is told again what it should have, whatever it has been told before.
    assert_eq!(together.run(&["ctl", "set", &stopped_pid, "soft-limit=3MiB"]).code, Some(0));
    let soft = || {
        let got = together.run(&["ctl", "get", &stopped_pid, "soft-limit", "--json"]);
        got.object()["amount"].as_u64()
    };
    let give_up = Instant::now() + TIMEOUT;
    while soft() == Some(3 * MIB) {
        assert!(Instant::now() < give_up, "a limit of somebody else stays");
    }
    looks(governor);
    for server in [stopped, exempt, other] {
        assert_eq!(limit(&together, &server), 40 * MIB);
        assert_eq!(server.stop().code, Some(0));
    }
}

#[test]
fn what_is_typed_wrong_is_one_line_and_a_dry_run_changes_nothing() {
    let Some(yonder) = Yonder::ready() else { return };
    let together = yonder.together();
    for (flags, says) in [
        (&["--weight", "x=much"][..], "such as redis-server=3"),
        (&["--memory", "1GiB", "--keep", "1GiB"], "--keep"),
        (&["--slowdown", "0%"], "such as 5%"),
    ] {
        let ended = together.run(&[&["governor"], flags].concat());
        assert!(ended.complaint(2).contains(says), "{}", ended.stderr);
    }
    let server = together.serve(&SERVER);
    let mut governor = govern(&together, &["--memory", "4MiB", "--dry-run"]);
    governor.wait_for("\"answers\":true");
    let second = together.run(&["governor", "--memory", "4MiB"]);
    assert!(second.complaint(1).contains("another governor runs"), "{}", second.stderr);
    (0..3).for_each(|_| _ = governor.wait_for("\"answers\":true"));
    assert_eq!(limit(&together, &server), 40 * MIB);
    assert!(looks(governor).iter().all(|look| number(look, "limit_bytes") <= 4 * MIB), "it says what it would give");
    assert_eq!((limit(&together, &server), server.stop().code), (40 * MIB, Some(0)));
}
