//! Nodes and address spaces that end in the middle of a move, and nodes that cannot join.

use yonder_client::Outcome;
use yonder_controller::ClientError;
use yonder_node::Node;
use yonder_placement::Refusal;
use yonder_wire::{AdoptRequest, AdoptStage, AdoptedAllocation, Backing, ErrorCode, InventoryList, Permission};

use crate::cluster::router::Router;
use crate::cluster::scene::{PAGE, REGION, Scene, until, url_of};
use crate::cluster::target::{Asked, Stage, Target};

/// A node whose region is on its way to a target that has not answered.
fn held_move() -> (Scene, Node, Target, Router, u64, Asked) {
    let scene = Scene::new(1);
    let node = scene.node(64);
    let mut router = Router::create(&scene);
    let address = router.allocate_region();
    router.write(address, &[7; 100]);
    let target = Target::new(&scene);
    scene.client().start_drain(&url_of(&node)).unwrap();
    let begin = target.next();
    assert_eq!(begin.stage, Stage::Begin);
    (scene, node, target, router, address, begin)
}

#[test]
fn a_target_that_dies_leaves_the_region_where_it_was() {
    let (scene, node, target, mut router, address, begin) = held_move();
    begin.answer(Ok(()));
    let fill = target.next();
    assert_eq!(fill.stage, Stage::Fill);
    scene.client().undrain(&url_of(&node)).unwrap();
    drop(fill);
    // Whoever asks again is told nothing more.
    let server = std::thread::spawn(move || drop(target));
    assert_eq!(router.read(address, 100), [7; 100]);
    router.write(address, &[8]);
    assert_eq!(router.read(address, 2), [8, 7]);
    until("the move has failed", || (node.stats().failed_moves == 1).then_some(()));
    server.join().unwrap();
}

#[test]
fn a_source_that_dies_is_missed_and_nothing_of_it_is_made_up() {
    let (scene, node, target, mut router, address, begin) = held_move();
    node.stop();
    drop(begin);
    let lost = until("the node is missed", || {
        let located = router.controller.locate(router.space.pid, router.space.keys.read, (address / REGION) as u32);
        located.err()
    });
    assert!(matches!(lost, ClientError::Refused(Refusal::RegionLost { .. })), "{lost}");
    drop((target, scene));
}

#[test]
fn a_space_that_ends_ends_its_move() {
    let (_scene, node, target, mut router, _, begin) = held_move();
    let spaces = node.stats().spaces;
    router.controller.destroy_space(router.space.pid, router.space.keys.owner).unwrap();
    until("the node has ended the space", || (node.stats().spaces == spaces - 1).then_some(()));
    assert_eq!((node.stats().allocated_bytes, node.stats().moves), (0, 0));
    until("the move has failed", || (node.stats().failed_moves == 1).then_some(()));
    drop(begin);
    drop(target);
}

#[test]
fn half_a_region_ends_with_its_space() {
    let scene = Scene::new(1);
    let node = scene.node(64);
    let mut router = Router::create(&scene);
    let address = router.allocate_region();
    let region = address / REGION;
    let allocated = node.stats().allocated_bytes;
    let (pages, from) = (REGION / PAGE, 2 * REGION);
    assert_ne!(region, 2);
    let allocation = AdoptedAllocation {
        first: (2 * pages) as u32,
        pages: 3,
        permission: Permission::ReadWrite,
        backing: Backing::OnDemand,
    };
    let list = InventoryList::new([allocation], [allocation.first]).unwrap();
    let request = |stage| AdoptRequest { transfer: 1, from, to: from + REGION, stage };
    let begin = request(AdoptStage::Begin(list.inventory())).to_bytes();
    assert_eq!(router.adopt(address, begin), Outcome::Done);
    until("it has room", || (node.stats().allocated_bytes == allocated + 3 * PAGE).then_some(()));
    let forged = AdoptRequest { transfer: 2, ..request(AdoptStage::Finish) }.to_bytes();
    assert_eq!(router.adopt(address, forged), Outcome::Refused(ErrorCode::BadAddress));
    let early = request(AdoptStage::Finish).to_bytes();
    assert_eq!(router.adopt(address, early), Outcome::Refused(ErrorCode::NotAllowed), "it is not whole");
    router.controller.destroy_space(router.space.pid, router.space.keys.owner).unwrap();
    until("all of it is gone", || (node.stats().allocated_bytes == 0).then_some(()));
}

#[test]
fn a_node_that_cannot_join_says_why() {
    let scene = Scene::new(1);
    let many = scene.try_node(1 << 10, 4096).map(drop);
    assert!(many.is_ok(), "256 pages are not too many: {many:?}");
    let large = scene.try_node(4, 2 * REGION).unwrap_err().to_string();
    assert!(large.starts_with("regions of 1 MiB with pages of 2 MiB are not possible"), "{large}");
    let address = scene.address();
    drop(scene);
    let config = yonder_node::NodeConfig {
        controller: Some(yonder_node::ControllerConfig::new(address.clone(), REGION)),
        ..yonder_node::NodeConfig::new(vec![yonder_node::Listen::Udp("127.0.0.1:0".to_owned())], 1 << 20)
    };
    let alone = Node::start(config).unwrap_err().to_string();
    assert!(alone.starts_with(&format!("controller {address} cannot be reached")), "{alone}");
}
