//! The flags with which a server gives up what it does not need once it serves.

use clap::Args;
use yonder_process::{User, UserError};

/// Whose the server becomes.
#[derive(Clone, Default, Debug, Args)]
pub(crate) struct UserArgs {
    /// Become this user once all addresses are bound, and give up all rights of root for good; for a server that root
    /// starts
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
}

impl UserArgs {
    /// The user, before anything is bound for it.
    pub(crate) fn find(&self) -> Result<Option<User>, UserError> {
        self.user.as_deref().map(User::named).transpose()
    }
}

/// Does something as the user that a server becomes, if it does: what it reads again later it reads as that user.
pub(crate) fn as_user<T>(user: Option<&User>, act: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    match user {
        Some(user) => user.act(act)?,
        None => act(),
    }
}

/// What the server may do.
#[derive(Clone, Default, Debug, Args)]
pub(crate) struct SandboxArgs {
    #[command(flatten)]
    pub(crate) user: UserArgs,
    /// Serve outside the sandbox (seccomp and landlock) that otherwise leaves the process no more than it needs
    #[arg(long)]
    pub(crate) no_sandbox: bool,
}
