//! How a credential is typed: `--identity` or `--key`; and who shows it then.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use clap::Args;
use yonder_identity::{Credential, Role, child_variables};

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

    /// Has all that this process connects to see what was typed, if anything was, in place of what the environment
    /// names. To be called once, before anything is opened.
    pub(crate) fn show(&self) -> anyhow::Result<()> {
        if self.is_typed() {
            self.of_client()?.into_iter().for_each(Credential::set_of_process);
        }
        Ok(())
    }

    /// The same for a program that serves others too: what was typed, if it may, is also that of its server.
    pub(crate) fn show_and_serve(&self) -> anyhow::Result<Option<Arc<Credential>>> {
        let credential = self.of_server(Role::Tenant)?;
        credential.iter().cloned().for_each(Credential::set_of_process);
        Ok(credential)
    }

    /// What the environment of a child must have to show the same: variables with their paths, or without one those
    /// that it must not have.
    pub(crate) fn child_variables(&self) -> anyhow::Result<[(&'static str, Option<PathBuf>); 2]> {
        let found = child_variables(self.identity.as_deref(), self.key.as_deref());
        found.context("the folder that this was started in is gone: go to another one, or type a path from / on")
    }
}

/// As it is typed for another command, with a space in front; nothing if nothing was.
impl fmt::Display for CredentialArgs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = [("identity", &self.identity), ("key", &self.key)];
        flags.into_iter().try_for_each(|(flag, path)| match path {
            Some(path) => write!(formatter, " --{flag} {}", path.display()),
            None => Ok(()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_shown_as_it_is_typed() {
        let key = CredentialArgs { key: Some("a.key".into()), ..CredentialArgs::default() };
        let identity = CredentialArgs { identity: Some("../me.pem".into()), ..CredentialArgs::default() };
        let shown = [CredentialArgs::default(), key, identity].map(|args| args.to_string());
        assert_eq!(shown, ["", " --key a.key", " --identity ../me.pem"]);
    }
}
