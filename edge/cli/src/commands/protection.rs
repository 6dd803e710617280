//! What `yonder node` and `yonder controller` say of their protection when they start: whom they serve, and whether
//! others can read along.

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

#[cfg(test)]
mod tests {
    use super::*;

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
