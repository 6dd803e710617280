//! The flags with which a server gives up what it does not need once it serves.

use anyhow::{Error, anyhow};
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

    /// Says to whom something was refused that the server has asked for as its user: what libraries tell their user to
    /// type is typed by another one here.
    pub(crate) fn name_in(&self, refused: impl Into<Error>) -> Error {
        match &self.user {
            Some(user) => named(user, &refused.into()),
            None => refused.into(),
        }
    }
}

/// What was refused to `user`, with the name in place of what a shell would take for the name of the one who types.
fn named(user: &str, refused: &Error) -> Error {
    let said = format!("{refused:#}").replace("$USER", user).replace("$(id -u)", user);
    anyhow!("as '{user}': {said}")
}

/// Makes the process `user`'s for good, if there is one. Threads that are made from here on have no more rights than
/// this one, and what is opened from here on is opened as that user.
pub(crate) fn become_user(user: Option<&User>) -> Result<(), UserError> {
    user.map_or(Ok(()), User::become_for_good)
}

/// Does something as the user that a server becomes, if it does: what it reads again later it reads as that user.
pub(crate) fn as_user<T>(user: Option<&User>, act: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    match user {
        Some(user) => user.act(act)?.map_err(|refused| named(user.name(), &refused)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_to_another_user_is_said_with_the_name() {
        let said = |user: Option<&str>| {
            let refused = anyhow!("run `setfacl -m u:$USER:rw A` or `chown $(id -u) A`").context("not to be had");
            format!("{:#}", UserArgs { user: user.map(str::to_owned) }.name_in(refused))
        };
        assert_eq!(said(None), "not to be had: run `setfacl -m u:$USER:rw A` or `chown $(id -u) A`");
        assert_eq!(said(Some("app")), "as 'app': not to be had: run `setfacl -m u:app:rw A` or `chown app A`");
    }
}
