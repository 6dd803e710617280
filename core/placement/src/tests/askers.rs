//! For whom requests are handled: what each may ask, and what is noted of it.

use super::*;

fn tenant(name: &str) -> Asker {
    Asker::Tenant(name.to_owned())
}

impl Scene {
    fn answer_to(&mut self, asker: Asker, request: Request) -> Answer {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let actions = self.handle(Event::Asked(ticket, asker, request));
        let mut answers = actions.answers.into_iter().filter(|(of, _)| *of == ticket);
        answers.next().expect("it waits for no node").1
    }
}

#[test]
fn a_tenant_has_its_own_spaces_and_an_operator_all() {
    let mut scene = Scene::new();
    scene.register(1, 4);
    let created = scene.answer_to(tenant("a"), Request::CreateSpace { keys: keys(1), lease_ms: 0 });
    let Answer::SpaceCreated { pid, .. } = created else { panic!("{created:?}") };
    let open = || Request::Open { pid, key: keys(1).read };
    let not_yours = Answer::Refused(Refusal::NotYours { pid });
    for (asker, is_served) in
        [(tenant("a"), true), (tenant("b"), false), (Asker::Operator, true), (Asker::local(), true)]
    {
        let answer = scene.answer_to(asker.clone(), open());
        assert_eq!(matches!(answer, Answer::Opened { .. }), is_served, "{asker}: {answer:?}");
        assert!(is_served || answer == not_yours, "{answer:?}");
    }
    // Those who have no key are told the same of all spaces.
    let unknown = Request::Open { pid, key: Key(99) };
    assert_eq!(scene.answer_to(tenant("b"), unknown), Answer::Refused(Refusal::BadKey { pid }));
    // A request that comes twice is of the one who sent it first.
    assert_eq!(scene.answer_to(tenant("a"), Request::CreateSpace { keys: keys(1), lease_ms: 0 }), created);
    assert_eq!(scene.answer_to(tenant("b"), Request::CreateSpace { keys: keys(1), lease_ms: 0 }), not_yours);
}

#[test]
fn only_those_who_run_the_cluster_see_and_change_it() {
    let mut scene = Scene::new();
    scene.register(1, 4);
    let node = NodeId(1).to_string();
    for (request, is_a_look) in [
        (Request::Nodes, true),
        (Request::Spaces { from: Pid::FIRST }, true),
        (Request::Tenants, true),
        (Request::Drain { node: node.clone() }, false),
        (Request::Undrain { node }, false),
    ] {
        for (asker, is_served) in [(Asker::Operator, true), (tenant("a"), false), (Asker::Observer, is_a_look)] {
            let answer = scene.answer_to(asker.clone(), request.clone());
            let is_refused = matches!(answer, Answer::Refused(Refusal::NotAnOperator { .. }));
            assert_eq!(is_refused, !is_served, "{asker} asks {request:?}: {answer:?}");
        }
    }
}

/// What waits for a node is handled again for the same asker.
#[test]
fn who_asks_is_known_while_a_request_waits() {
    let mut scene = Scene::new();
    scene.register(1, 4);
    let created = scene.answer_to(tenant("a"), Request::CreateSpace { keys: keys(1), lease_ms: 0 });
    let Answer::SpaceCreated { pid, .. } = created else { panic!("{created:?}") };
    let place = Request::PlaceRegion { pid, key: keys(1).owner, bytes: 1, avoid: Vec::new() };
    let waits = scene.handle(Event::Asked(Ticket(100), tenant("a"), place));
    assert!(waits.answers.is_empty() && !waits.commands.is_empty());
    let made = Outcome::SpaceCreated { pid, capabilities: capabilities(1) };
    let answers = scene.handle(Event::Answered(NodeId(1), made)).answers;
    assert!(matches!(&answers[..], [(Ticket(100), Answer::Placed { .. })]), "{answers:?}");
}

/// Records of releases in which makers were not noted are read, and are of no tenant.
#[test]
fn a_space_without_a_maker_is_of_no_tenant() {
    let keys_text = serde_json::to_string(&keys(1)).unwrap();
    let old = format!("{{\"space\":{{\"pid\":{},\"keys\":{keys_text}}}}}", Pid::FIRST.0);
    let record: Record = serde_json::from_str(&old).unwrap();
    let space = SpaceRecord::new(keys(1), None, SPACE_LEASE_MS_MAX);
    assert_eq!(record, Record::Space { pid: Pid::FIRST, space });
    assert_eq!(serde_json::to_string(&record).unwrap(), old, "and earlier releases read what is written");
    for maker in [Maker::Tenant("a".to_owned()), Maker::Source("10.0.0.1".to_owned())] {
        let space = SpaceRecord::new(keys(1), Some(maker), 60_000);
        let record = Record::Space { pid: Pid::FIRST, space };
        assert_eq!(serde_json::from_str::<Record>(&serde_json::to_string(&record).unwrap()).unwrap(), record);
    }
    let mut scene = Scene::new();
    scene.controller = Controller::restore(config(), ClusterId(7), [record], 0).unwrap();
    let open = Request::Open { pid: Pid::FIRST, key: keys(1).owner };
    assert_eq!(scene.answer_to(tenant("a"), open.clone()), Answer::Refused(Refusal::NotYours { pid: Pid::FIRST }));
    assert!(matches!(scene.answer_to(Asker::Operator, open), Answer::Opened { .. }));
}

#[test]
fn each_maker_has_so_many_spaces() {
    let mut scene = Scene::new();
    let limited = Config { spaces_per_maker_max: 2, ..config() };
    scene.controller = Controller::restore(limited, ClusterId(7), [], 0).unwrap();
    let source = |address: &str| Asker::Source(address.to_owned());
    let mut number = 0;
    let mut create = |scene: &mut Scene, asker: &Asker| {
        number += 1;
        scene.answer_to(asker.clone(), Request::CreateSpace { keys: keys(number), lease_ms: 0 })
    };
    for asker in [tenant("a"), tenant("b"), source("10.0.0.1"), source("10.0.0.2")] {
        for _ in 0..2 {
            assert!(matches!(create(&mut scene, &asker), Answer::SpaceCreated { .. }));
        }
        let refused = create(&mut scene, &asker);
        assert!(matches!(refused, Answer::Refused(Refusal::TooManySpaces { spaces_max: 2, .. })), "{refused:?}");
    }
    for _ in 0..5 {
        assert!(matches!(create(&mut scene, &Asker::Operator), Answer::SpaceCreated { .. }));
    }
}

#[test]
fn a_tenant_has_no_more_spaces_than_its_newest_limit_says() {
    let mut scene = Scene::new();
    let mut number = 0;
    let mut is_made = |scene: &mut Scene, name: &str| {
        number += 1;
        let create = Request::CreateSpace { keys: keys(number), lease_ms: 0 };
        match scene.answer_to(tenant(name), create) {
            Answer::SpaceCreated { .. } => None,
            Answer::Refused(Refusal::TooManySpaces { spaces_max, .. }) => Some(spaces_max),
            other => panic!("{other:?}"),
        }
    };
    scene.controller.limit_spaces("a", 1, 10);
    assert_eq!([(); 2].map(|()| is_made(&mut scene, "a")), [None, Some(1)]);
    assert_eq!([(); 2].map(|()| is_made(&mut scene, "b")), [None, None]);
    scene.controller.limit_spaces("a", 9, 9);
    assert_eq!(is_made(&mut scene, "a"), Some(1), "an older certificate raises nothing");
    scene.controller.limit_spaces("a", 2, 11);
    assert_eq!([(); 2].map(|()| is_made(&mut scene, "a")), [None, Some(2)]);
    scene.controller.limit_spaces("a", 0, 12);
    assert_eq!(is_made(&mut scene, "a"), Some(0));
}

#[test]
fn a_name_is_of_one_node_that_is_there() {
    let mut scene = Scene::new();
    let named = |node, name: &str| Registration { name: Some(name.to_owned()), ..facts(node, 4) };
    let report = NodeReport::default();
    let register = |scene: &mut Scene, facts: Registration| {
        scene.controller.admit(&facts, None).unwrap();
        scene.handle(Event::Registered { facts, report: report.clone(), spaces: Vec::new() })
    };
    register(&mut scene, named(1, "n1"));
    let admit = |scene: &Scene, facts: &Registration| scene.controller.admit(facts, None);
    assert!(admit(&scene, &named(2, "n1")).unwrap_err().contains("a node called n1 is connected already"));
    assert!(admit(&scene, &named(1, "n2")).unwrap_err().contains("known by another name"));
    assert!(admit(&scene, &facts(1, 4)).unwrap_err().contains("known by another name"));
    admit(&scene, &named(1, "n1")).unwrap();
    admit(&scene, &named(2, "n2")).unwrap();
    let drained = scene.answer_to(Asker::Operator, Request::Drain { node: "n1".to_owned() });
    assert_eq!(drained, Answer::Draining { regions_left: 0 });
    scene.handle(Event::Disconnected(NodeId(1)));
    register(&mut scene, named(2, "n1"));
}
