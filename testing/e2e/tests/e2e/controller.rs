//! `yonder controller` as a process: it ends when it is told to, keeps its state in a file or in etcd, and gives way to
//! one controller at a time.

use std::path::Path;

use rustix::process::Signal;
use yonder::clib::{ClibError, Process as Space, Rights};
use yonder_e2e::{Process, Yonder};

use crate::etcd_server::Etcd;

/// Starts a controller with its state in `folder`.
fn start(yonder: Yonder, folder: &Path, listen: &str) -> Process {
    let state = folder.join("state").display().to_string();
    yonder.serve(&["controller", "--listen", listen, "--state", &state])
}

/// How programs name the controller.
fn url(controller: &Process) -> String {
    controller.url("tcp").replace("tcp://", "controller://")
}

#[test]
fn a_controller_ends_well_at_either_signal() {
    let yonder = Yonder::found();
    let folder = tempfile::tempdir().expect("a temporary folder");
    for signal in [Signal::INT, Signal::TERM] {
        let controller = start(yonder, folder.path(), "tcp://127.0.0.1:0");
        let _space = Space::create(&url(&controller)).expect("it serves");
        controller.signal(signal);
        let ended = controller.end();
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""), "{}", ended.stderr);
        assert!(ended.stderr.contains("ended"), "{}", ended.stderr);
    }
}

#[test]
fn address_spaces_outlive_the_controller() {
    let yonder = Yonder::found();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let first = start(yonder, folder.path(), "tcp://127.0.0.1:0");
    let listen = first.url("tcp");
    let space = Space::create(&url(&first)).expect("it serves");
    let ticket = space.ticket(Rights::ReadWrite).expect("the owner hands rights out");
    // As a crash would: nothing is said or written at the end.
    first.kill();
    let second = start(yonder, folder.path(), &listen);
    let opened = Space::open(&url(&second), ticket).expect("the space is known");
    assert_eq!(opened.own_ticket(), ticket);
    // Who made the space ends it, at whichever controller is there.
    drop(space);
    assert!(matches!(Space::open(&url(&second), ticket), Err(ClibError::Lost)));
    assert_eq!(second.stop().code, Some(0));
}

#[test]
fn a_state_has_one_controller_and_one_size_of_regions() {
    let yonder = Yonder::found();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let state = folder.path().join("state").display().to_string();
    let first = start(yonder, folder.path(), "tcp://127.0.0.1:0");
    let flags = ["controller", "--listen", "tcp://127.0.0.1:0", "--state", &state];
    let ended = yonder.run(&flags);
    assert!(ended.complaint(1).contains(&state) && ended.complaint(1).contains("stop that one"), "{}", ended.stderr);
    drop(Space::create(&url(&first)).expect("it serves"));
    assert_eq!(first.stop().code, Some(0));
    let ended = yonder.run(&[&flags[..], &["--region-size", "2MiB"]].concat());
    let complaint = ended.complaint(1);
    assert!(complaint.contains("1 GiB") && complaint.contains("type the size"), "{complaint}");
}

#[test]
fn another_controller_takes_over_in_etcd() {
    let Some(etcd) = Etcd::start() else { return };
    let yonder = Yonder::found();
    // Nothing serves there, so that the command ends, whatever it was built with.
    let ended = yonder.run(&["controller", "--listen", "tcp://127.0.0.1:0", "--etcd", "http://127.0.0.1:1"]);
    if ended.complaint(1).contains("--features etcd") {
        println!("SKIP: yonder was built without etcd: cargo build -p yonder-cli --features etcd");
        return;
    }
    let flags = ["controller", "--listen", "tcp://127.0.0.1:0", "--etcd", etcd.endpoint()];
    let first = yonder.serve(&flags);
    let space = Space::create(&url(&first)).expect("it serves");
    let ticket = space.ticket(Rights::Read).expect("the owner hands rights out");

    let mut waiting = yonder.spawn(&flags);
    let said = waiting.wait_for("waiting to take over");
    assert!(said.contains("the controller at 127.0.0.1:0, process "), "it names who leads: {said}");
    // One that waits can be told to end, and one that leads does not notice.
    let ended = waiting.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);

    let mut second = yonder.spawn(&flags);
    second.wait_for("waiting to take over");
    // It does not give its leadership back: the second waits until the lease is over.
    first.kill();
    let second = second.listening();
    assert!(Space::open(&url(&second), ticket).is_ok());
    // Programs name all controllers, so whoever leads is found.
    let nodes = yonder.run(&["controller", "nodes", "--json", "--at", &second.url("tcp")]);
    assert_eq!((nodes.code, nodes.stdout.as_str()), (Some(0), ""), "{}", nodes.stderr);
    let third = {
        let ended = second.stop();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        // The second gave its leadership back, so nothing is waited for.
        yonder.serve(&flags)
    };
    assert!(Space::open(&url(&third), ticket).is_ok());
    drop(space);
}
