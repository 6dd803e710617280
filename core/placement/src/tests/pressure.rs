//! Nodes under pressure: which regions leave them, and where to.

use super::*;

#[test]
fn the_coldest_region_leaves_a_pressed_node_and_the_largest_of_equals() {
    let mut scene = Scene::new();
    scene.register(1, 10);
    let pid = scene.create();
    for region in 1..=4 {
        assert_eq!(scene.placed(pid, REGION), [(region, 1)]);
    }
    scene.register(2, 10);
    let regions = [(pid, 1, REGION, 9), (pid, 2, REGION / 2, 1), (pid, 3, REGION, 1), (pid, 4, REGION, 5)];
    let actions = scene.report(1, REGION, &regions);
    assert_eq!(
        actions.commands,
        [(NodeId(2), Command::CreateSpace { pid, tenant: None })],
        "the target must know the space first"
    );
    let made = Outcome::SpaceCreated { pid, capabilities: capabilities(2) };
    let actions = scene.handle(Event::Answered(NodeId(2), made));
    assert_eq!(orders(&actions), [(1, 2, 2, MoveId(2)), (1, 3, 2, MoveId(1))], "9 of 10 in use, until below 8 of 10");
    let Answer::Located(placement) = scene.locate(pid, 3) else { panic!() };
    assert_eq!(placement.node, NodeId(1), "the owner serves until it says that it has moved the region");
    scene.handle(Event::Answered(NodeId(1), Outcome::Moved { id: MoveId(1) }));
    let Answer::Located(placement) = scene.locate(pid, 3) else { panic!() };
    assert_eq!((placement.node, placement.capability), (NodeId(2), capabilities(2).read));
    let late = scene.handle(Event::Answered(NodeId(1), Outcome::Moved { id: MoveId(1) }));
    assert_eq!(late, Actions::default(), "said twice");
}

#[test]
fn nobody_is_moved_to_where_pressure_would_begin() {
    let mut scene = Scene::new();
    scene.register(1, 10);
    scene.register(2, 10);
    let pid = scene.create();
    scene.placed(pid, REGION);
    scene.report(2, REGION + REGION / 2, &[]);
    let actions = scene.report(1, 0, &[(pid, 1, REGION, 0)]);
    assert_eq!(actions.commands, []);
}
