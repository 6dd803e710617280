//! What servers say of their protection when they start: whom a node or a controller serves, and whether others can
//! read along; and what `kv` or `serve` leaves on a disk.

use std::path::Path;

use yonder_node::Listen;

use crate::args::{CredentialArgs, is_of_this_machine};

/// How the sockets of `shm://` are protected, whatever credential there is.
const SHARED: &str = "shm:// not encrypted, for this user alone";

/// How a node that listens at these bound addresses is protected, in one line. Members may do without encryption.
pub(super) fn of_node(credential: &CredentialArgs, listen: &[Listen]) -> String {
    let network: Vec<&str> = listen.iter().filter_map(Listen::socket_address).collect();
    let shared = (network.len() < listen.len()).then(|| SHARED.to_owned());
    let network = (!network.is_empty()).then(|| of_network(credential, &network).to_owned());
    network.into_iter().chain(shared).collect::<Vec<_>>().join("; ")
}

/// How a server at these addresses of the network, each host:port, is protected.
pub(super) fn of_network<A: AsRef<str>>(credential: &CredentialArgs, addresses: &[A]) -> &'static str {
    if credential.is_typed() {
        "protected, for members alone"
    } else if addresses.iter().all(|address| is_of_this_machine(address.as_ref())) {
        "not encrypted, for this machine alone"
    } else {
        "not encrypted, for all who reach it (--open)"
    }
}

/// What is left on a disk by a server with this far memory, if something is that can be read.
pub(super) fn of_far(url: &str) -> Option<&'static str> {
    let is_open = url.match_indices("file://").any(|(at, scheme)| {
        let (before, file) = (&url[..at], &url[at + scheme.len()..]);
        let path = file.split(['?', '+']).next().unwrap_or(file);
        // A layer before all tiers, or right before the file.
        let mut layers = before.split("tier+").take(1).chain(before.rsplit("://").take(1));
        // In a folder the file has no name, and is gone with the process.
        !layers.any(|layers| layers.contains("seal+")) && !Path::new(path).is_dir()
    });
    is_open.then_some(
        "what is in the file can be read there, also after a kill: type seal+file:// to encrypt it, or a folder, which \
         keeps nothing",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_on_a_disk_is_said_unless_it_is_sealed_or_has_no_name() {
        for (url, is_said) in [
            ("file:///far/store?size=1GiB", true),
            ("lz4+file:///far/store", true),
            ("tier+seal+tcp://host:7000+file:///far/store", true),
            ("tier+seal+file:///far/one+file:///far/two", true),
            ("seal+file:///far/store", false),
            ("lz4+seal+tier+tcp://host:7000+file:///far/store", false),
            ("tier+tcp://host:7000+lz4+seal+file:///far/store", false),
            ("file:///", false),
            ("tcp://host:7000", false),
        ] {
            assert_eq!(of_far(url).is_some(), is_said, "{url}");
        }
    }

    #[test]
    fn a_node_says_whom_it_serves_and_whether_others_read_along() {
        let (plain, key) = (CredentialArgs::default(), Some("cluster.key".into()));
        let member = CredentialArgs { key, ..CredentialArgs::default() };
        let here = Listen::Udp("127.0.0.1:7070".to_owned());
        let open = Listen::Tcp("0.0.0.0:7070".to_owned());
        let shared = Listen::Shm("/run/yonder/node.sock".into());
        let says =
            |credential, listen: &[&Listen]| of_node(credential, &listen.iter().copied().cloned().collect::<Vec<_>>());
        for (credential, listen, wanted) in [
            (&plain, &[&here][..], "not encrypted, for this machine alone"),
            (&plain, &[&here, &open], "not encrypted, for all who reach it (--open)"),
            (&member, &[&here, &open], "protected, for members alone"),
            (&plain, &[&shared], SHARED),
            (&member, &[&shared], SHARED),
            (
                &plain,
                &[&shared, &here],
                "not encrypted, for this machine alone; shm:// not encrypted, for this user alone",
            ),
        ] {
            assert_eq!(says(credential, listen), wanted);
        }
    }
}
