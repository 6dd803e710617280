//! What the controller tells of address spaces.

use super::*;

#[test]
fn spaces_are_listed_with_what_they_have_and_without_keys() {
    let mut scene = Scene::new();
    scene.register(1, 4);
    scene.register(2, 4);
    let list = |scene: &mut Scene, from| match scene.answer(Request::Spaces { from }) {
        Answer::Spaces { spaces, next } => (spaces, next),
        other => panic!("{other:?}"),
    };
    assert_eq!(list(&mut scene, Pid::FIRST), (Vec::new(), None));
    let pid = scene.create();
    let empty = SpaceView {
        pid,
        regions: 0,
        allocated_bytes: 0,
        nodes: Vec::new(),
        tenant: None,
        groups_below: 0,
        pages_below: 0,
        is_pages_below_unknown: false,
    };
    assert_eq!(list(&mut scene, pid), (vec![empty], None));
    scene.placed(pid, 2 * REGION);
    scene.placed(pid, PAGE);
    let full = SpaceView {
        pid,
        regions: 3,
        allocated_bytes: 2 * REGION + PAGE,
        nodes: vec![NodeId(1), NodeId(2)],
        tenant: None,
        groups_below: 0,
        pages_below: 0,
        is_pages_below_unknown: false,
    };
    assert_eq!(list(&mut scene, Pid::FIRST), (vec![full], None));
    assert_eq!(list(&mut scene, Pid(pid.0 + 1)), (Vec::new(), None));
    assert_eq!(scene.answer(Request::DestroySpace { pid, key: keys(1).owner }), Answer::Destroyed);
    assert_eq!(list(&mut scene, Pid::FIRST), (Vec::new(), None));
}

#[test]
fn spaces_too_many_for_one_answer_are_told_in_several() {
    let mut scene = Scene::new();
    let count = SPACES_PER_ANSWER_MAX + 3;
    let records = (0..count as u32).map(|number| Record::Space {
        pid: Pid(Pid::FIRST.0 + number),
        space: SpaceRecord::new(keys(1), None, SPACE_LEASE_MS_MAX),
    });
    scene.controller = Controller::restore(config(), ClusterId(7), records, 0).unwrap();
    let (mut seen, mut from, mut answers) = (0, Some(Pid::FIRST), 0);
    while let Some(first) = from {
        let Answer::Spaces { spaces, next } = scene.answer(Request::Spaces { from: first }) else { panic!() };
        assert!(spaces.iter().enumerate().all(|(at, view)| view.pid.0 == first.0 + at as u32));
        (seen, answers, from) = (seen + spaces.len(), answers + 1, next);
    }
    assert_eq!((seen, answers), (count, 2));
}
