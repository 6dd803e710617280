//! What cannot be done is one line that says what is wrong and what to type, and the exit code tells scripts.

use std::net::TcpListener;

use serde_json::Value;
use yonder_e2e::Yonder;

fn assert_says_what_to_type(complaint: &str) {
    let helps = ["type ", "choose ", "start ", "give "].iter().any(|word| complaint.contains(word));
    assert!(complaint.starts_with("yonder: ") && helps, "{complaint}");
}

#[test]
fn addresses_that_are_taken_are_named() {
    let Some(yonder) = Yonder::ready() else { return };
    let taken = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
    let address = taken.local_addr().expect("bound").to_string();
    let url = format!("tcp://{address}");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let socket = format!("shm://{}", folder.path().join("node.sock").display());
    let _node = yonder.serve(&["node", "--listen", &socket, "--memory", "16MiB"]);
    for (args, name) in [
        (&["kv", "--listen", &address][..], &address),
        (&["kv", "--listen", "127.0.0.1:0", "--udp", &address], &address),
        (&["kv", "--listen", "127.0.0.1:0", "--metrics", &address], &address),
        (&["node", "--listen", &url, "--memory", "16MiB"], &url),
        (&["node", "--listen", &socket, "--memory", "16MiB"], &socket),
    ] {
        if args.contains(&"--udp") {
            // Ports of TCP and UDP are different things: this one is free, so the test takes it.
            let _taken = std::net::UdpSocket::bind(&address).expect("the port is free for UDP");
            let ended = yonder.run(args);
            assert_says_what_to_type(ended.complaint(1));
            continue;
        }
        let ended = yonder.run(args);
        let complaint = ended.complaint(1);
        assert!(complaint.contains(name.as_str()), "{complaint}");
        assert_says_what_to_type(complaint);
    }
}

/// What asks no one who he is listens where only this machine can ask, unless it is told to be open.
#[test]
fn what_strangers_reach_is_not_listened_at() {
    let yonder = Yonder::found();
    let (near, far) = ("127.0.0.1:0", "0.0.0.0:0");
    for args in [
        &["node", "--memory", "16MiB", "--listen", "tcp://127.0.0.1:0,udp://0.0.0.0:0"][..],
        &["node", "--memory", "16MiB", "--listen", "tcp://127.0.0.1:0", "--metrics", far],
        &["controller", "--listen", "tcp://0.0.0.0:0", "--state", "/nowhere/at/all"],
        &["serve", "rocksdb", "--listen", far],
        &["serve", "tpcc", "--listen", near, "--metrics", far],
        &["kv", "--listen", far],
    ] {
        let ended = yonder.run(args);
        let complaint = ended.complaint(1);
        assert!(complaint.contains("0.0.0.0:0 is reached from other machines"), "{args:?}: {complaint}");
        assert_says_what_to_type(complaint);
    }
    let open = yonder.serve(&["node", "--memory", "16MiB", "--listen", "tcp://0.0.0.0:0", "--open"]);
    assert_eq!(open.stop().code, Some(0));
}

#[test]
fn what_a_server_would_regret_is_refused_at_its_start() {
    let yonder = Yonder::found();
    let open = ["kv", "--listen", "127.0.0.1:0", "--udp", "0.0.0.0:0"];
    for (args, names) in [
        (&open[..], ["0.0.0.0:0", "--open"]),
        (&["kv", "--listen", "127.0.0.1:0", "--buffers", "1MiB"], ["1048576 bytes", "--buffers 5MiB"]),
    ] {
        let ended = yonder.run(args);
        let complaint = ended.complaint(1);
        assert!(names.iter().all(|name| complaint.contains(name)), "{complaint}");
        assert_says_what_to_type(complaint);
    }
    let Some(yonder) = Yonder::ready() else { return };
    let server = yonder.serve(&[&open[..], &["--open", "--memory", "16MiB", "--local", "4MiB"]].concat());
    assert!(server.udp_address().ip().is_unspecified());
}

#[test]
fn servers_that_are_not_there_are_named() {
    let yonder = Yonder::found();
    // Bound and released: nothing listens there now.
    let nobody = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let nobody = nobody.expect("loopback has free ports").to_string();
    let far = format!("tcp://{nobody}");
    for args in [
        &["load", "kv", "--target", &nobody][..],
        &["top", "--once", "--attach", &nobody],
        &["kv", "--listen", "127.0.0.1:0", "--far", &far],
        &["bench", "soak", "--far", &far],
        &["bench", "fault", "--far", "shm:///no/such/socket"],
    ] {
        let ended = yonder.run(args);
        let complaint = ended.complaint(1);
        assert!(complaint.contains(&nobody) || complaint.contains("/no/such/socket"), "{complaint}");
        assert_says_what_to_type(complaint);
    }
}

#[test]
fn the_doctor_speaks_json_lines() {
    let ended = Yonder::found().run(&["doctor", "--json"]);
    let objects = ended.objects();
    let checks: Vec<&str> = objects.iter().filter_map(|object| object["check"].as_str()).collect();
    for name in ["kernel", "userfaultfd", "cpus", "memory"] {
        assert!(checks.contains(&name), "{name} is not among {checks:?}");
    }
    let missing = |object: &&Value| object["status"] == "missing";
    for object in objects.iter().filter(missing) {
        assert!(object["mend"].is_string(), "the doctor does not say how to mend it: {object}");
    }
    let ready = ended.code == Some(0);
    assert_eq!(ready, objects.iter().filter(missing).count() == 0, "{}", ended.stdout);
    assert!(ended.stderr.is_empty(), "{}", ended.stderr);
}
