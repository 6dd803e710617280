//! A controller whose state is in etcd, which the test starts on this machine.

use std::process::Command;
use std::time::Duration;

use yonder_controller::{EtcdAccess, EtcdStore, Leadership, Store, StoreError, Write};

use crate::etcd_server::Etcd;
use crate::fake::{Cluster, REGION, config, url};

/// Opens the state of the controllers in these tests.
fn open(etcd: &Etcd, name: &str, leadership: Leadership) -> Result<EtcdStore, StoreError> {
    EtcdStore::open(&plain(etcd), "yonder/", name, leadership)
}

/// In the clear.
fn plain(etcd: &Etcd) -> EtcdAccess {
    EtcdAccess { endpoints: vec![etcd.endpoint().to_owned()], tls: None }
}

/// The state of a controller that has come first.
fn first(etcd: &Etcd) -> EtcdStore {
    open(etcd, "first", Leadership::Refuse).unwrap()
}

fn put(key: &str, value: &str) -> Write {
    Write::Put { key: key.to_owned(), value: value.as_bytes().to_vec() }
}

/// What another client of etcd is told; `None` if there is none.
fn etcdctl(etcd: &Etcd, arguments: &[&str]) -> Option<String> {
    let mut etcdctl = Command::new("etcdctl");
    etcdctl.env("ETCDCTL_API", "3").args(["--endpoints", etcd.endpoint()]).args(arguments);
    match etcdctl.output() {
        Ok(output) => Some(String::from_utf8(output.stdout).unwrap()),
        Err(_) => {
            println!("SKIP: etcdctl is not installed: apt-get install etcd-client");
            None
        }
    }
}

#[test]
fn records_are_kept_and_one_controller_leads() {
    let Some(etcd) = Etcd::start() else { return };
    let mut first = first(&etcd);
    let many: Vec<Write> = (0..250).map(|number| put(&format!("region/{number:03}"), "here")).collect();
    first.commit(&many).unwrap();
    first.commit(&[put("space/1", "a"), Write::DeletePrefix { prefix: "region/1".to_owned() }]).unwrap();
    first.commit(&[Write::Delete { key: "region/000".to_owned() }]).unwrap();
    assert_eq!(first.scan("region/").unwrap().len(), 149);
    assert_eq!(first.scan("space/").unwrap(), [("space/1".to_owned(), b"a".to_vec())]);
    first.announce("a node", b"{}", Duration::from_secs(2)).unwrap();
    first.announce("a node", b"{}", Duration::from_secs(2)).unwrap();
    let refused = open(&etcd, "second", Leadership::Refuse).unwrap_err();
    assert!(matches!(&refused, StoreError::Taken { holder, .. } if holder.starts_with("first (")), "{refused}");
    let second = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| open(&etcd, "second", Leadership::Wait).unwrap());
        first.commit(&[put("space/2", "b")]).unwrap();
        drop(first);
        waiting.join().unwrap()
    });
    let mut second = second;
    assert_eq!(second.scan("space/").unwrap().len(), 2);
}

#[test]
fn a_leader_that_was_replaced_cannot_write() {
    let Some(etcd) = Etcd::start() else { return };
    let mut first = first(&etcd);
    let mut other = EtcdStore::open(&plain(&etcd), "other/", "other", Leadership::Refuse).unwrap();
    first.commit(&[put("space/1", "a")]).unwrap();
    // As if its lease had ended and another controller had come: the key that says who leads says something else.
    if etcdctl(&etcd, &["put", "yonder/leader", "somebody else"]).is_none() {
        return;
    }
    assert!(matches!(first.commit(&[put("space/1", "b")]), Err(StoreError::Deposed { .. })));
    assert_eq!(first.scan("space/").unwrap(), [("space/1".to_owned(), b"a".to_vec())]);
    other.commit(&[put("space/1", "c")]).unwrap();
}

/// The lease of a node that had gone was over, and the leader kept its own because of that: the next one waited.
#[test]
fn a_leader_that_ends_gives_back_all_leases_though_some_are_over() {
    let Some(etcd) = Etcd::start() else { return };
    let mut first = first(&etcd);
    let announced = ["a", "b"].map(|node| {
        first.announce(node, b"{}", Duration::from_secs(600)).unwrap();
        format!("yonder/live/{node}")
    });
    let Some(shown) = etcdctl(&etcd, &["get", &announced[0], "--write-out", "json"]) else { return };
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let lease = shown["kvs"][0]["lease"].as_i64().unwrap();
    etcdctl(&etcd, &["lease", "revoke", &format!("{lease:x}")]).unwrap();
    let is_announced = |key: &String| !etcdctl(&etcd, &["get", key]).unwrap().is_empty();
    assert_eq!(announced.each_ref().map(is_announced), [false, true]);
    drop(first);
    open(&etcd, "second", Leadership::Refuse).unwrap();
    assert_eq!(announced.each_ref().map(is_announced), [false, false]);
}

#[test]
fn another_controller_goes_on_where_the_first_one_stopped() {
    let Some(etcd) = Etcd::start() else { return };
    let mut cluster = Cluster::new(config(), Box::new(first(&etcd)));
    let _nodes = [cluster.node(1, 10), cluster.node(2, 10)];
    let mut client = cluster.client();
    let space = client.create_space().unwrap();
    let placed = client.place(space.pid, space.keys.owner, REGION, &[]).unwrap();
    cluster.network.write(space.pid, &placed[0], REGION, 5).unwrap();
    cluster.restart(|| Box::new(open(&etcd, "second", Leadership::Wait).unwrap()));
    assert_eq!(client.locate(space.pid, space.keys.owner, 1).unwrap(), placed[0]);
    client.drain(&url(1), crate::fake::TIMEOUT).unwrap();
    let at = client.locate(space.pid, space.keys.owner, 1).unwrap();
    assert_eq!(cluster.network.read(space.pid, &at, REGION), Ok(Some(5)));
}
