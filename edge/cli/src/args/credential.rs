//! How a credential is typed: `--identity` or `--key`.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::anyhow;
use clap::Args;
use yonder_identity::{Credential, Role};

/// The flags, of which one may be given.
#[derive(Clone, Default, Debug, Args)]
pub(crate) struct CredentialArgs {
    /// Identity, made with yonder cluster add: both ends of each connection show who they are
    #[arg(long, value_name = "FILE")]
    pub(crate) identity: Option<PathBuf>,
    /// Shared key, made with yonder cluster key, which all have: instead of an identity
    #[arg(long, value_name = "FILE", conflicts_with = "identity")]
    pub(crate) key: Option<PathBuf>,
}

impl CredentialArgs {
    /// Whether one was typed.
    pub(crate) const fn is_typed(&self) -> bool {
        self.identity.is_some() || self.key.is_some()
    }

    /// The credential of a server with this role. What the environment names is for clients.
    pub(crate) fn of_server(&self, role: Role) -> anyhow::Result<Option<Arc<Credential>>> {
        if !self.is_typed() {
            return Ok(None);
        }
        let credential = self.of_client()?;
        credential.iter().try_for_each(|credential| credential.check_role(role))?;
        Ok(credential)
    }

    /// The credential of a client: what was typed, or else what YONDER_IDENTITY or YONDER_KEY names.
    pub(crate) fn of_client(&self) -> anyhow::Result<Option<Arc<Credential>>> {
        Credential::of_user(self.identity.as_deref(), self.key.as_deref()).map_err(|error| anyhow!(error))
    }
}
