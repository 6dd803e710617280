//! Whether a server that asks clients for nothing may be reached from other machines.

use std::net::ToSocketAddrs;

use anyhow::ensure;
use clap::Args;

/// The flag, and what it allows.
#[derive(Clone, Copy, Default, Debug, Args)]
pub(crate) struct OpenArgs {
    /// Listen at addresses that other machines reach, though nothing keeps strangers out: for a network that is yours
    /// alone
    #[arg(long)]
    pub(crate) open: bool,
}

impl OpenArgs {
    /// Refuses addresses, each host:port, that other machines reach, unless the server is to be open. What has no
    /// address is left to who binds it.
    pub(crate) fn check<A: AsRef<str>>(self, addresses: impl IntoIterator<Item = A>) -> anyhow::Result<()> {
        self.check_or(addresses, "")
    }

    /// The same for a server that can ask clients who they are: `more` is what else may be typed.
    pub(crate) fn check_or<A: AsRef<str>>(
        self,
        addresses: impl IntoIterator<Item = A>,
        more: &str,
    ) -> anyhow::Result<()> {
        for address in addresses {
            let address = address.as_ref();
            ensure!(
                self.open || is_of_this_machine(address),
                "{address} is reached from other machines, and nothing keeps strangers out: type an address of this \
                 machine, such as 127.0.0.1:7000, or --open if the network is yours alone{more}"
            );
        }
        Ok(())
    }
}

/// Whether only this machine reaches an address.
pub(crate) fn is_of_this_machine(address: &str) -> bool {
    let Ok(mut resolved) = address.to_socket_addrs() else { return true };
    resolved.all(|address| address.ip().to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_strangers_reach_is_refused() {
        let closed = OpenArgs::default();
        for address in ["127.0.0.1:7000", "127.9.9.9:1", "[::1]:7000", "[::ffff:127.0.0.1]:7000", "localhost:7000", "?"]
        {
            assert!(closed.check([address]).is_ok(), "{address}");
        }
        for address in ["0.0.0.0:7000", "[::]:7000", "10.0.0.2:7000", "[::ffff:10.0.0.2]:7000", "[fe80::1]:7000"] {
            let refused = closed.check(["127.0.0.1:1", address]).unwrap_err().to_string();
            assert!(refused.starts_with(address) && refused.contains("--open") && !refused.contains('\n'), "{refused}");
            assert!(OpenArgs { open: true }.check([address]).is_ok());
        }
    }
}
