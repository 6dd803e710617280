//! Regions of one address space spread over nodes by how empty those are.

use super::*;

#[test]
fn regions_of_a_space_go_to_the_emptiest_node() {
    let mut scene = Scene::new();
    scene.register(1, 4);
    scene.register(2, 8);
    let pid = scene.create();
    assert_eq!(scene.placed(pid, REGION), [(1, 1)], "equal shares: the first");
    assert_eq!(scene.placed(pid, REGION), [(2, 2)], "a quarter of node 1 is promised, nothing of node 2");
    assert_eq!(scene.placed(pid, REGION), [(3, 2)], "an eighth of node 2");
    assert_eq!(scene.placed(pid, REGION), [(4, 1)], "equal shares again");
    let Answer::SpaceCreated { pid: other, .. } = scene.answer(Request::CreateSpace { keys: keys(2), lease_ms: 0 })
    else {
        panic!()
    };
    let place = Request::PlaceRegion { pid: other, key: keys(2).owner, bytes: 1, avoid: Vec::new() };
    let Answer::Placed { regions } = scene.answer(place) else { panic!() };
    assert_eq!(regions[0].node, NodeId(2), "half of node 1 is promised, a quarter of node 2");
    assert_eq!(regions[0].capability, capabilities(2).owner);
}

#[test]
fn what_is_in_use_and_what_is_promised_both_count_and_neither_twice() {
    let mut scene = Scene::new();
    scene.register(1, 10);
    scene.register(2, 10);
    let pid = scene.create();
    // Somebody else, whom the controller does not know, uses memory of node 1.
    scene.report(1, 7 * REGION, &[]);
    assert_eq!(scene.placed(pid, REGION), [(1, 2)]);
    // Two reports later what was given counts as reported: all of it has its memory now.
    for _ in 0..2 {
        scene.report(2, 9 * REGION, &[(pid, 1, REGION, 0)]);
    }
    assert_eq!(scene.placed(pid, REGION), [(2, 2)], "1 of 10 in use is 1 of 10, although it was promised too");
    assert_eq!(scene.placed(pid, REGION), [(3, 2)], "1 of 10 in use and 1 promised");
    assert_eq!(scene.placed(pid, REGION), [(4, 1)], "3 of 10 on both: the first");
    assert_eq!(scene.placed(pid, REGION), [(5, 2)]);
}
