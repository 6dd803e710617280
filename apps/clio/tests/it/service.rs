//! The image service against a real node.

use yonder::clib::{ClibError, Process, Ticket};
use yonder_clio::image::{Album, AlbumShape, ImageSettings, Photo, paint, run};
use yonder_clio::{AppError, Meter};
use yonder_node::{Listen, Node, NodeConfig};

fn node() -> (Node, String) {
    node_of(64 << 20)
}

fn node_of(bytes: u64) -> (Node, String) {
    let config = NodeConfig {
        page_bytes: Some(64 << 10),
        ..NodeConfig::new(vec![Listen::Udp("127.0.0.1:0".to_owned())], bytes)
    };
    let node = Node::start(config).unwrap();
    let url = node.addresses()[0].to_string();
    (node, url)
}

#[test]
fn clients_get_every_pixel_back() {
    let (node, url) = node();
    let spaces = node.stats().spaces;
    let settings = ImageSettings { clients: vec![1, 3], photos: 4, side: 96, ..ImageSettings::new(url) };
    let mut said = Vec::new();
    let results = run(&settings, &mut |what, _| said.push(what.to_owned())).unwrap();
    assert_eq!(said, ["1 clients", "3 clients"]);
    for (result, clients) in results.iter().zip([1, 3]) {
        assert_eq!((result.clients, result.costs.operations), (clients, 8 * clients as u64));
        assert_eq!(result.original_bytes, clients as u64 * 4 * (96 * 96 * 3 + 8));
        assert!(result.compressed_bytes < result.original_bytes && result.compressed_bytes > 0);
        // Originals and compressed ones go there and come back, with the length of each, which is read first.
        let both = result.original_bytes + result.compressed_bytes;
        assert_eq!(result.costs.written_bytes, both + 8 * result.costs.operations);
        assert_eq!(result.costs.fetched_bytes, both + 8 * result.costs.operations);
    }
    assert_eq!((node.stats().spaces, node.stats().allocated_bytes), (spaces, 0), "clients leave nothing behind");
}

#[test]
fn files_are_compressed_too() {
    let (_node, url) = node();
    let folder = tempfile::tempdir().unwrap();
    let files: Vec<_> = (0..2).map(|number| folder.path().join(format!("{number}.png"))).collect();
    std::fs::write(&files[0], paint(1, 50, 20).compress()).unwrap();
    std::fs::write(&files[1], paint(2, 10, 90).compress()).unwrap();
    let settings = ImageSettings { clients: vec![2], photos: 3, files, ..ImageSettings::new(url) };
    let results = run(&settings, &mut |_, _| {}).unwrap();
    assert_eq!((results[0].source, results[0].costs.operations), ("files", 12));
}

#[test]
fn an_album_keeps_photographs_of_any_size_in_their_places() {
    let (_node, url) = node();
    let process = Process::create(&url).unwrap();
    let mut meter = Meter::new(&process).unwrap();
    let shape = AlbumShape { photos: 3, photo_bytes_max: 30 * 30 * 3 + 8 };
    let album = Album::create(shape, &mut meter).unwrap();
    assert_eq!(album.get(1, &mut meter).unwrap(), None);
    assert_eq!(album.compress(1, &mut meter).unwrap(), None);
    assert!(!album.decompress(1, &mut meter).unwrap());
    // Noise that cannot be compressed, and a photograph that is one pixel wide, need the most room.
    let noise: Vec<u8> = (0..2700u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 53) as u8).collect();
    let photos = [Photo::new(30, 30, noise.clone()), Photo::new(1, 900, noise), paint(9, 7, 5)];
    for (index, photo) in (0..).zip(&photos) {
        album.put(index, photo, &mut meter).unwrap();
    }
    for index in 0..3 {
        assert!(album.compress(index, &mut meter).unwrap().is_some());
        album.forget(index, &mut meter).unwrap();
        assert_eq!(album.get(index, &mut meter).unwrap(), None);
    }
    for (index, photo) in (0..).zip(&photos) {
        assert!(album.decompress(index, &mut meter).unwrap());
        assert_eq!(album.get(index, &mut meter).unwrap().as_ref(), Some(photo));
    }
    let refused = album.put(0, &paint(1, 31, 30), &mut meter).unwrap_err();
    assert!(refused.to_string().contains("make the album for larger ones"), "{refused}");
}

#[test]
fn one_client_never_sees_the_photographs_of_another() {
    let (_node, url) = node();
    let [alice, bob] = [(); 2].map(|()| Process::create(&url).unwrap());
    let mut meters = [&alice, &bob].map(|process| Meter::new(process).unwrap());
    let secret = meters[0].allocate(1 << 20).unwrap();
    meters[0].write(secret, &[0x5e; 1 << 20]).unwrap();
    // Bob tries every page of the range in which Alice's album lies, and of one of his own.
    let own = meters[1].allocate(1 << 20).unwrap();
    for base in [secret, own] {
        for page in 0..16 {
            let mut bytes = [0; 64];
            match meters[1].read(base + page * (64 << 10), &mut bytes) {
                Ok(()) => assert_eq!(bytes, [0; 64], "memory of somebody else was read"),
                Err(error) => assert!(matches!(error, AppError::Node(ClibError::BadRange(_))), "{error}"),
            }
        }
    }
    // His own proof does not open her address space.
    let proof = bob.own_ticket().to_string();
    let (_, proof) = proof.split_once('-').unwrap();
    let forged: Ticket = format!("{:x}-{proof}", alice.own_ticket().pid()).parse().unwrap();
    assert!(matches!(Process::open(&url, forged), Err(ClibError::Lost)));
}

#[test]
fn settings_that_cannot_work_say_what_to_type() {
    let wrong = [
        ImageSettings { clients: vec![0], ..ImageSettings::new(String::new()) },
        ImageSettings { photos: 0, ..ImageSettings::new(String::new()) },
        ImageSettings { side: 0, ..ImageSettings::new(String::new()) },
    ];
    for settings in wrong {
        let refused = run(&settings, &mut |_, _| {}).unwrap_err().to_string();
        assert!(refused.contains("type --") && !refused.contains('\n'), "{refused}");
    }
    let (_node, url) = node_of(1 << 20);
    let huge = ImageSettings { photos: 20, clients: vec![1], ..ImageSettings::new(url) };
    let refused = run(&huge, &mut |_, _| {}).unwrap_err().to_string();
    assert!(refused.contains("--memory"), "{refused}");
}
