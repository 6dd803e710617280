//! What the controller makes of what nodes say of tenants.

use super::*;

fn report(name: &str, requests: u64, memory_bytes: u64) -> TenantReport {
    TenantReport {
        name: name.to_owned(),
        requests,
        bytes: requests * 4096,
        work_ns: requests * 100,
        memory_bytes,
        reserved_bytes: 2 * memory_bytes,
        connections: 1,
        ..TenantReport::default()
    }
}

impl Scene {
    fn hear(&mut self, node: u64, tenants: Vec<TenantReport>) {
        let report = NodeReport { free_bytes: 4 * REGION, tenants, ..NodeReport::default() };
        self.handle(Event::Reported(NodeId(node), report));
    }

    fn tenants(&mut self) -> Vec<TenantView> {
        match self.answer(Request::Tenants) {
            Answer::Tenants(tenants) => tenants,
            other => panic!("{other:?}"),
        }
    }

    fn tenant(&mut self, name: &str) -> TenantView {
        self.tenants().into_iter().find(|view| view.tenant == name).expect("it is known")
    }

    /// A space of a tenant, with a region, and so on a node.
    fn create_as(&mut self, name: &str, of: u128) -> Pid {
        let asker = Asker::Tenant(name.to_owned());
        self.handle(Event::Asked(Ticket(1000), asker, Request::CreateSpace { keys: keys(of), lease_ms: 0 }));
        let Answer::Spaces { spaces, .. } = self.answer(Request::Spaces { from: Pid::FIRST }) else { panic!() };
        spaces.last().expect("it was made").pid
    }
}

#[test]
fn what_nodes_say_is_summed_by_name_and_made_rates_of() {
    let mut scene = Scene::new();
    (1..=2).for_each(|node| drop(scene.register(node, 4)));
    scene.hear(1, vec![report("app", 1000, 10), report("10.0.0.9", 5, 7)]);
    scene.hear(2, vec![report("app", 10, 5)]);
    let view = scene.tenant("app");
    assert_eq!((view.nodes, view.requests, view.memory_bytes, view.reserved_bytes), (2, 1010, 15, 30));
    scene.now += SECOND / 2;
    scene.hear(1, vec![report("app", 1500, 10), report("10.0.0.9", 5, 7), report("new", 50, 0)]);
    let names: Vec<String> = scene.tenants().into_iter().map(|view| view.tenant).collect();
    assert_eq!(names, ["app", "10.0.0.9", "new"], "most memory first");
    let view = scene.tenant("app");
    assert_eq!((view.requests_per_s, view.bytes_per_s, view.work_ns_per_s), (1000, 1000 * 4096, 100_000));
    assert_eq!((view.requests, view.connections), (1510, 2));
    assert_eq!(scene.tenant("10.0.0.9").requests_per_s, 0);
    assert_eq!(scene.tenant("new").requests_per_s, 100, "it has done all since the report before");
    // Two reports at one time, and numbers that have shrunk, are no rates.
    scene.hear(1, vec![report("app", 1501, 10)]);
    assert_eq!(scene.tenant("app").requests_per_s, 1000);
    scene.now += SECOND / 2;
    scene.hear(1, vec![report("app", 3, 10)]);
    assert_eq!(scene.tenant("app").requests_per_s, 0);
}

/// What others have waiting is older than what is heard meanwhile: two reports once came at one time.
#[test]
fn rates_and_rests_are_by_the_clock_whatever_waits() {
    let mut scene = Scene::new();
    scene.register(1, 4);
    let pid = scene.create();
    scene.placed(pid, REGION);
    let came = scene.now;
    for (clock, requests) in [(0, 0), (SECOND / 2, 50), (SECOND, 150)] {
        let report = NodeReport { tenants: vec![report("app", requests, 10)], ..NodeReport::default() };
        scene.controller.handle_late(Event::Reported(NodeId(1), report), late(came, clock));
    }
    assert_eq!(scene.tenant("app").requests_per_s, 200);
    // A move that failed then is not tried again because the backlog is gone.
    scene.ask(Request::Drain { node: NodeId(1).to_string() });
    scene.now = SECOND;
    assert_eq!(scene.register(2, 4).commands, [(NodeId(2), Command::CreateSpace { pid, tenant: None })]);
    let refused = Outcome::SpaceRefused { pid, cause: "no".to_owned() };
    scene.controller.handle_late(Event::Answered(NodeId(2), refused), late(SECOND, 3 * SECOND));
    scene.now = 7 * SECOND;
    for node in 1..=2 {
        assert_eq!(scene.report(node, 4 * REGION, &[]).commands, [], "it rests for five seconds");
    }
    scene.now = 8 * SECOND;
    assert_eq!(scene.report(1, 4 * REGION, &[]).commands, [(NodeId(2), Command::CreateSpace { pid, tenant: None })]);
}

/// What a node had reported while a store was slow was heard in a moment, and a tenant once had done all of it in one.
#[test]
fn rates_are_by_when_reports_came_however_soon_they_follow() {
    let mut scene = Scene::new();
    scene.register(1, 4);
    for second in 0..4 {
        let report = NodeReport { tenants: vec![report("app", 100 * second, 10)], ..NodeReport::default() };
        let times = Times { came: second * SECOND, ..Times::at(5 * SECOND + second) };
        scene.controller.handle_late(Event::Reported(NodeId(1), report), times);
    }
    assert_eq!(scene.tenant("app").requests_per_s, 100);
}

#[test]
fn what_a_node_said_is_over_with_it() {
    let mut scene = Scene::new();
    scene.register(1, 4);
    scene.hear(1, vec![report("app", 0, 10)]);
    scene.now += SECOND / 2;
    scene.hear(1, vec![report("app", 50, 10)]);
    assert_eq!(scene.tenant("app").requests_per_s, 100);
    scene.handle(Event::Disconnected(NodeId(1)));
    let view = scene.tenant("app");
    assert_eq!((view.memory_bytes, view.requests_per_s), (10, 0), "it may still have its memory, and does nothing");
    scene.pass(10 * SECOND);
    assert_eq!(scene.tenants(), Vec::new());
}

#[test]
fn a_tenant_that_has_done_nothing_is_told_of_and_a_space_counts_once() {
    let mut scene = Scene::new();
    (1..=2).for_each(|node| drop(scene.register(node, 4)));
    let pid = scene.create_as("app", 1);
    let view = scene.tenant("app");
    assert_eq!((view.nodes, view.spaces, view.memory_bytes), (0, 1, 0));
    // It is on two nodes, and one of them has two others, which the tenant has made there.
    scene.placed(pid, 3 * REGION);
    scene.hear(1, vec![TenantReport { spaces: 1, ..report("app", 1, 1) }]);
    scene.hear(2, vec![TenantReport { spaces: 3, ..report("app", 1, 1) }]);
    assert_eq!(scene.tenant("app").spaces, 3);
    // A report may be older than the last of its spaces.
    scene.hear(1, vec![report("app", 1, 1)]);
    assert_eq!(scene.tenant("app").spaces, 3);
    // Spaces of programs without names are of their addresses.
    scene.answer(Request::CreateSpace { keys: keys(2), lease_ms: 0 });
    assert_eq!(scene.tenant("127.0.0.1").spaces, 1);
}

#[test]
fn what_a_node_may_say_is_bounded() {
    let mut scene = Scene::new();
    scene.register(1, 4);
    let many = (0..2 * TENANTS_PER_REPORT_MAX).map(|number| report(&format!("t{number}"), 1, number as u64));
    let many: Vec<TenantReport> = many.collect();
    let most = TenantReport::most(many.clone());
    assert_eq!(most.len(), TENANTS_PER_REPORT_MAX);
    assert!(most.iter().all(|report| report.memory_bytes >= TENANTS_PER_REPORT_MAX as u64));
    scene.hear(1, many);
    assert_eq!(scene.tenants().len(), TENANTS_PER_REPORT_MAX);
    let wrong = ["", &"x".repeat(65), "a\u{1b}[2J", "a b", "ä"].map(|name| report(name, 1, 1));
    scene.hear(1, wrong.to_vec());
    assert_eq!(scene.tenants(), Vec::new());
    for node in 1..=5 {
        scene.register(node, 4);
        let own = (0..TENANTS_PER_REPORT_MAX).map(|number| report(&format!("n{node}t{number}"), 1, node));
        scene.hear(node, own.collect());
    }
    let told = scene.tenants();
    assert_eq!(told.len(), TENANTS_PER_ANSWER_MAX);
    assert!(told.iter().all(|view| view.memory_bytes > 1), "those with least are left out");
}

/// Reports of releases in which tenants were not told of are read, and read what is written.
#[test]
fn a_report_without_tenants_has_none() {
    let old = "{\"free_bytes\":7,\"regions\":[],\"arrived\":[]}";
    let report: NodeReport = serde_json::from_str(old).unwrap();
    assert_eq!(report, NodeReport { free_bytes: 7, ..NodeReport::default() });
    assert_eq!(serde_json::to_string(&report).unwrap(), old);
    let told = NodeReport { tenants: vec![self::report("app", 3, 4)], ..report };
    assert_eq!(serde_json::from_str::<NodeReport>(&serde_json::to_string(&told).unwrap()).unwrap(), told);
}
