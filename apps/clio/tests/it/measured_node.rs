//! What a meter counts, with a real node.

use yonder::clib::{ClibError, Process};
use yonder_clio::{AppError, Meter, Tally, Traffic};
use yonder_node::{Listen, Node, NodeConfig};

#[test]
fn what_is_asked_for_is_counted() {
    let node = Node::start(NodeConfig::new(vec![Listen::Udp("127.0.0.1:0".to_owned())], 16 << 20)).unwrap();
    let process = Process::create(&node.addresses()[0].to_string()).unwrap();
    let mut meter = Meter::new(&process).unwrap();
    let address = meter.allocate(1 << 16).unwrap();
    let mut tally = Tally::default();
    tally.time(&mut meter, |meter| meter.write(address, &[7; 100])).unwrap();
    tally.time(&mut meter, |meter| meter.fetch_add(address + 96, 1)).unwrap();
    let words = tally.time(&mut meter, |meter| meter.read_words::<2>(address)).unwrap();
    assert_eq!(words, [0x0707_0707_0707_0707; 2]);
    meter.read(address, &mut []).unwrap();
    assert_eq!(meter.traffic(), Traffic { round_trips: 4, fetched_bytes: 24, written_bytes: 108 });
    meter.free(address).unwrap();
    let refused = tally.time(&mut meter, |meter| meter.read(address, &mut [0]));
    assert!(matches!(refused, Err(AppError::Node(ClibError::BadRange(_)))));

    let mut twice = tally.clone();
    twice.merge(&tally);
    let costs = serde_json::to_value(twice.costs(2.0)).unwrap();
    assert_eq!((costs["operations"].as_u64(), costs["ops_per_s"].as_f64()), (Some(6), Some(3.0)));
    assert_eq!((costs["round_trips"].as_u64(), costs["fetched_bytes"].as_u64()), (Some(6), Some(48)));
    assert_eq!((costs["written_bytes"].as_u64(), costs["errors"].as_u64()), (Some(216), Some(0)));
}
