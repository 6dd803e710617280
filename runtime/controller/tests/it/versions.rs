//! Peers of other releases: what only they know does no harm, and those that are too old are told so.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;

use yonder_controller::{
    ClientError, ControllerClient, FromController, LinkCondition, LinkError, ToController, VERSION, VERSION_MIN,
};
use yonder_identity::Role;
use yonder_placement::{Answer, Refusal, Request};

use crate::fake::{Cluster, TIMEOUT, any_port, config, until};
use crate::identities::{Members, Raw, register};
use crate::signs::{Still, cluster_of, serves};

fn say(raw: &mut Raw, line: &str) {
    writeln!(raw.stream, "{line}").unwrap();
}

fn asks(raw: &mut Raw, id: u64) -> bool {
    raw.say(&ToController::Ask { id, request: Request::Nodes });
    matches!(raw.hear(), FromController::Answer { id: answered, answer: Answer::Nodes(_) } if answered == id)
}

#[test]
fn a_request_of_a_later_release_is_refused_and_the_connection_stays() {
    let cluster = Cluster::in_memory();
    let mut client = Raw::new(cluster.address, None);
    say(&mut client, r#"{"ask":{"id":1,"request":{"sing":{"loud":true}}}}"#);
    assert_eq!(client.hear(), FromController::Answer { id: 1, answer: Answer::Refused(Refusal::NotKnown) });
    say(&mut client, r#"{"ask":{"id":2,"request":"sing","sung":true}}"#);
    assert_eq!(client.hear(), FromController::Answer { id: 2, answer: Answer::Refused(Refusal::NotKnown) });
    assert!(asks(&mut client, 3));
    // What is wrong is no request of another release, and neither is what is no request.
    for line in [r#"{"ask":{"id":4,"request":{"locate":{}}}}"#, r#"{"sing":{}}"#] {
        let mut client = Raw::new(cluster.address, None);
        say(&mut client, line);
        let cause = client.cause();
        assert!(cause.contains("not one of this protocol") || cause.contains("register first"), "{cause}");
    }
}

#[test]
fn what_a_node_of_a_later_release_says_is_passed_over() {
    let cluster = Cluster::in_memory();
    let mut node = Raw::new(cluster.address, None);
    node.say(&register(1, None));
    assert!(matches!(node.hear(), FromController::Registered { version: VERSION, .. }));
    say(&mut node, r#"{"sing":{"loud":true}}"#);
    say(&mut node, r#"{"outcome":{"sung":{}}}"#);
    assert!(serves(&mut cluster.client(), 1));
    // It may report, and asks nothing, as before.
    say(&mut node, r#"{"ask":{"id":1,"request":"sing"}}"#);
    assert!(node.cause().contains("asks nothing"));
}

#[test]
fn a_node_passes_over_what_a_later_controller_says() {
    let (cluster, still) = (Cluster::in_memory(), Still::new());
    let id = cluster_of(&cluster);
    let (link, mut connection) = std::thread::scope(|scope| {
        let node = scope.spawn(|| cluster.node_at(&still.before(cluster.address), 1, 10, None).unwrap());
        let connection = still.welcome(id, 0);
        (node.join().unwrap(), connection)
    });
    let mut reports = std::io::BufReader::new(connection.try_clone().unwrap());
    writeln!(connection, r#"{{"sing":{{}}}}"#).unwrap();
    writeln!(connection, r#"{{"do":{{"sing":{{"pid":1}}}}}}"#).unwrap();
    writeln!(connection, r#"{{"do":{{"destroy-space":{{"pid":2147483648}}}}}}"#).unwrap();
    let heard = until("it does what it knows", || {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut reports, &mut line).unwrap();
        line.contains("space-destroyed").then_some(line)
    });
    assert_eq!(heard.trim(), r#"{"outcome":{"space-destroyed":{"pid":2147483648}}}"#);
    assert_eq!(link.condition(), LinkCondition::Connected);
}

#[test]
fn a_peer_that_is_too_old_is_told_so() {
    let cluster = Cluster::in_memory();
    let mut node = Raw::new(cluster.address, None);
    let ToController::Register { facts, cluster: of, spaces, report, .. } = register(1, None) else { unreachable!() };
    let (knows_alive, version, version_min) = (false, VERSION_MIN - 1, 1);
    node.say(&ToController::Register { facts, cluster: of, spaces, report, knows_alive, version, version_min });
    assert!(node.cause().contains("releases between"));

    let still = Still::new();
    let error = std::thread::scope(|scope| {
        let node = scope.spawn(|| cluster.node_at(&still.address.to_string(), 2, 10, None).unwrap_err());
        let _connection = still.welcome_with(cluster_of(&cluster), 0, version);
        node.join().unwrap()
    });
    assert!(matches!(&error, LinkError::TurnedAway { cause, .. } if cause.contains("releases between")), "{error}");
}

/// It was admitted once, and left at once when it was told the controller's version, ten times a second.
#[test]
fn a_node_that_is_too_new_is_told_so_before_it_is_admitted() {
    let cluster = Cluster::in_memory();
    let mut node = Raw::new(cluster.address, None);
    let ToController::Register { facts, cluster: of, spaces, report, .. } = register(1, None) else { unreachable!() };
    let (knows_alive, version, version_min) = (true, VERSION + 2, VERSION + 1);
    node.say(&ToController::Register { facts, cluster: of, spaces, report, knows_alive, version, version_min });
    assert!(node.cause().contains("upgrade the controllers first"));
    assert_eq!(cluster.client().nodes().unwrap(), []);
}

#[test]
fn who_may_not_ask_is_turned_away_with_a_request_of_a_later_release_too() {
    let mut members = Members::new();
    let cluster = members.cluster(config());
    let mut node = Raw::new(cluster.address, Some(&members.add(Role::Node, "n1")));
    say(&mut node, r#"{"ask":{"id":1,"request":"sing"}}"#);
    assert!(node.cause().contains("asks nothing"));
}

/// What was asked is asked of no other controller then: it once was, and was done twice.
#[test]
fn an_answer_of_a_later_release_is_an_error_at_once() {
    let (cluster, later) = (Cluster::in_memory(), TcpListener::bind(any_port()).unwrap());
    let addresses = format!("{},{}", later.local_addr().unwrap(), cluster.address);
    let error = std::thread::scope(|scope| {
        let client = scope.spawn(|| ControllerClient::new(&addresses, TIMEOUT).create_space().unwrap_err());
        let mut stream = later.accept().unwrap().0;
        BufReader::new(stream.try_clone().unwrap()).read_line(&mut String::new()).unwrap();
        writeln!(stream, r#"{{"answer":{{"id":1,"answer":{{"sung":{{}}}}}}}}"#).unwrap();
        client.join().unwrap()
    });
    assert!(matches!(&error, ClientError::TurnedAway { cause, .. } if cause.contains("'sung'")), "{error}");
}
