//! Clusters of two releases: this one and the one before, whose binary the variable `YONDER_BEFORE` names. Each is
//! rolled under a server whose client reads and writes all the time, and none of it may fail: see `rolling`.
//!
//! `cargo xtask versions` builds the other binary, and runs these one after the other.

use yonder_e2e::Yonder;

use crate::rolling::{Binaries, Cluster, roll_all_to};

const NODES: usize = 4;

/// This release and the one before, if that is named.
fn releases() -> Option<(Yonder, Yonder)> {
    let before = Yonder::before();
    if before.is_none() {
        println!("SKIP: no binary of the release before is named: type cargo xtask versions");
    }
    Some((Yonder::found(), before?))
}

/// Starts a cluster, and rolls it under load: all that is restarted is `after`.
fn roll(what: &str, binaries: Binaries, after: Binaries) {
    let begun = std::time::Instant::now();
    let (_cluster, restarted) = roll_all_to(after, Cluster::start_of(binaries, NODES), "?copies=2");
    println!("versions: {what}: {} restarted in {:.1} s, no error", restarted.len(), begun.elapsed().as_secs_f64());
}

#[test]
fn nodes_and_clients_are_of_this_release_and_the_controller_of_the_one_before() {
    let Some((now, before)) = releases() else { return };
    let mixed = Binaries { controllers: before, ..Binaries::all(now) };
    roll("controller before, nodes and client now", mixed, mixed);
}

#[test]
fn the_controller_and_clients_are_of_this_release_and_nodes_of_the_one_before() {
    let Some((now, before)) = releases() else { return };
    let mixed = Binaries { nodes: before, ..Binaries::all(now) };
    roll("nodes before, controller and client now", mixed, mixed);
}

#[test]
fn a_client_of_the_release_before_uses_a_cluster_of_this_one() {
    let Some((now, before)) = releases() else { return };
    let mixed = Binaries { kv: before, ..Binaries::all(now) };
    roll("client before, cluster now", mixed, mixed);
}

#[test]
fn a_client_of_this_release_uses_a_cluster_of_the_one_before() {
    let Some((now, before)) = releases() else { return };
    let mixed = Binaries { kv: now, ..Binaries::all(before) };
    roll("cluster before, client now", mixed, mixed);
}

#[test]
fn a_cluster_is_upgraded_under_a_client_of_the_release_before() {
    let Some((now, before)) = releases() else { return };
    roll("upgrade of the cluster, client before", Binaries::all(before), Binaries::all(now));
}

/// An upgrade that is taken back: what this release has stored the one before reads.
#[test]
fn a_cluster_is_taken_back_to_the_release_before_under_a_client_of_this_one() {
    let Some((now, before)) = releases() else { return };
    roll("upgrade taken back, client now", Binaries::all(now), Binaries::all(before));
}
