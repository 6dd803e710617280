//! Where `yonder kv` and `yonder serve` listen, and who may look at their metrics: all who reach them, or with a
//! credential operators, and those who have the same one.

use std::net::SocketAddr;

use yonder_metrics::MetricsServer;

use crate::args::{CredentialArgs, OpenArgs};

/// Refuses addresses that other machines reach, unless the server is to be open: its own, where it asks no one who he
/// is, and that of its metrics, unless a credential is typed.
pub(super) fn check_addresses(
    own: impl IntoIterator<Item = SocketAddr>,
    metrics: Option<&str>,
    open: OpenArgs,
    credential: &CredentialArgs,
) -> anyhow::Result<()> {
    open.check(own.into_iter().map(|address| address.to_string()))?;
    let metrics = metrics.filter(|_| !credential.is_typed());
    open.check_or(metrics, ", or --identity FILE or --key FILE")
}

/// Where the metrics are, and what shows them to the one who has started the server.
pub(super) fn how_to_watch(metrics: &MetricsServer, credential: &CredentialArgs) -> String {
    format!("metrics on {0}; `yonder top --attach {0}{credential}` shows them", metrics.address())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_that_ask_who_looks_may_be_reached_and_what_asks_nothing_may_not() {
        let (plain, key) = (CredentialArgs::default(), Some("cluster.key".into()));
        let keyed = CredentialArgs { key, ..CredentialArgs::default() };
        let (here, there) = (SocketAddr::from(([127, 0, 0, 1], 0)), SocketAddr::from(([0, 0, 0, 0], 0)));
        let check = |own, open, credential| {
            check_addresses([own], Some("0.0.0.0:9185"), OpenArgs { open }, credential)
                .map_err(|error| error.to_string())
        };
        assert_eq!(check(here, false, &keyed), Ok(()));
        let refused = check(here, false, &plain).unwrap_err();
        assert!(refused.starts_with("0.0.0.0:9185 ") && refused.contains("--key FILE"), "{refused}");
        let refused = check(there, false, &keyed).unwrap_err();
        assert!(refused.starts_with("0.0.0.0:0 ") && !refused.contains("--key"), "{refused}");
        for credential in [&plain, &keyed] {
            assert_eq!(check(there, true, credential), Ok(()));
        }
    }
}
