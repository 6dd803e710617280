//! How a move ends well: on the word of either node, heard once or again, before and after restarts.

use super::*;

/// A region of node 1 whose move to node 2 was ordered.
fn ordered() -> (Scene, Pid) {
    let mut scene = Scene::new();
    scene.register(1, 10);
    scene.register(2, 10);
    let pid = scene.create();
    scene.placed(pid, REGION);
    scene.report(1, 0, &[(pid, 1, REGION, 0)]);
    let made = Outcome::SpaceCreated { pid, capabilities: capabilities(2) };
    assert_eq!(orders(&scene.handle(Event::Answered(NodeId(2), made))), [(1, 1, 2, MoveId(1))]);
    (scene, pid)
}

fn open(pid: Pid) -> (NodeId, Command) {
    (NodeId(2), Command::OpenRegion { pid, region: 1, id: MoveId(1) })
}

fn opened(pid: Pid) -> Event {
    Event::Answered(NodeId(2), Outcome::RegionOpened { pid, region: 1, id: MoveId(1) })
}

fn arrived(pid: Pid, id: u64) -> NodeReport {
    let arrived = vec![Arrival { pid, region: 1, id: MoveId(id) }];
    NodeReport { free_bytes: 9 * REGION, arrived, ..NodeReport::default() }
}

fn owner(scene: &mut Scene, pid: Pid) -> u64 {
    let Answer::Located(placement) = scene.locate(pid, 1) else { panic!("it is somewhere") };
    placement.node.0
}

#[test]
fn the_target_is_told_until_it_serves_and_nothing_moves_before() {
    let (mut scene, pid) = ordered();
    let moved = scene.handle(Event::Answered(NodeId(1), Outcome::Moved { id: MoveId(1) }));
    assert_eq!(moved.commands, [open(pid)]);
    assert_eq!(owner(&mut scene, pid), 2);
    scene.restart();
    scene.register(1, 10);
    assert_eq!(scene.register(2, 10).commands, [open(pid)], "it is told again");
    scene.ask(Request::Drain { node: NodeId(2).to_string() });
    assert_eq!(orders(&scene.report(2, 0, &[(pid, 1, REGION, 0)])), [], "it may not serve it yet");
    assert_eq!(orders(&scene.handle(opened(pid))), [(2, 1, 1, MoveId(2))]);
    assert_eq!(scene.handle(opened(pid)), Actions::default(), "said twice");
    scene.restart();
    assert_eq!(orders(&scene.register(2, 10)), [(2, 1, 1, MoveId(2))], "it is told once that it serves it");
}

#[test]
fn a_region_is_where_its_source_has_told_the_target_even_if_the_source_is_lost() {
    let (mut scene, pid) = ordered();
    scene.pass(config().lease - SECOND);
    scene.report(2, 9 * REGION, &[]);
    scene.pass(SECOND);
    assert!(matches!(scene.locate(pid, 1), Answer::Refused(Refusal::RegionLost { .. })));
    let other = scene.handle(Event::Reported(NodeId(2), arrived(pid, 7)));
    assert_eq!(other.commands, [], "that is another move");
    let heard = scene.handle(Event::Reported(NodeId(2), arrived(pid, 1)));
    assert_eq!((heard.commands, owner(&mut scene, pid)), (vec![open(pid)], 2));
    scene.handle(opened(pid));
    let again = scene.handle(Event::Reported(NodeId(2), arrived(pid, 1)));
    assert_eq!(again.commands, [open(pid)], "it has not heard that the controller knows");
    let late = scene.handle(Event::Answered(NodeId(1), Outcome::Moved { id: MoveId(1) }));
    assert_eq!((late, owner(&mut scene, pid)), (Actions::default(), 2));
}

#[test]
fn a_move_that_waits_for_a_lost_node_does_not_hold_up_others() {
    let (mut scene, pid) = ordered();
    let one = Config { moves_max: 1, ..config() };
    scene.controller = Controller::restore(one, ClusterId(8), scene.records.clone(), scene.now).unwrap();
    scene.pass(config().lease - SECOND);
    scene.register(2, 10);
    scene.pass(SECOND);
    assert_eq!(scene.placed(pid, REGION), [(2, 2)]);
    scene.ask(Request::Drain { node: NodeId(2).to_string() });
    scene.report(2, 9 * REGION, &[(pid, 2, REGION, 0)]);
    scene.register(3, 10);
    let made = Outcome::SpaceCreated { pid, capabilities: capabilities(3) };
    assert_eq!(orders(&scene.handle(Event::Answered(NodeId(3), made))), [(2, 2, 3, MoveId(2))]);
}
