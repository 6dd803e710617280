//! [`BoundNode`]: a node that listens and has its memory, before it serves. Here it gives up what it needed for that:
//! its user's rights, and all that its sandbox does not list.

use std::io;
use std::path::{Path, PathBuf};

use yonder_board::SlowPath;
use yonder_process::{Sandbox, User};

use crate::cpus::Cpus;
use crate::listen::Listen;
use crate::{Node, NodeConfig, NodeError, Sockets, controller, sandbox};

/// A node without threads. Clients that connect wait for [`BoundNode::serve`]; dropping it ends it.
#[derive(Debug)]
pub struct BoundNode {
    pub(crate) node: Node,
    pub(crate) config: NodeConfig,
    pub(crate) sockets: Sockets,
    pub(crate) stream_threads: usize,
    pub(crate) cpus: Option<Cpus>,
    pub(crate) slow: SlowPath,
}

impl BoundNode {
    /// Makes the threads, joins the controller if there is one, and serves.
    pub fn serve(self) -> Result<Node, NodeError> {
        let Self { mut node, config, sockets, stream_threads, cpus, slow } = self;
        // Threads begin on the CPUs of the one that starts them.
        let _left = cpus.as_ref().map(Cpus::leave);
        node.run(&config, sockets, stream_threads, cpus, slow)?;
        let join = |at| controller::join(&node.shared, at, config.credential.clone(), &node.addresses);
        node.link = config.controller.as_ref().map(join).transpose()?;
        Ok(node)
    }

    /// Where the node listens, as [`Node::addresses`].
    #[must_use]
    pub fn addresses(&self) -> &[Listen] {
        self.node.addresses()
    }

    /// Gives sockets in the file system to the user whose the node becomes: only that user's processes may connect to
    /// them.
    pub fn give_sockets(&self, user: &User) -> io::Result<()> {
        self.node.socket_paths.iter().try_for_each(|path| user.give(path))
    }

    /// What the node needs from [`BoundNode::serve`] on: its credential, metrics, and a log to standard error included.
    /// It also reads files of `readable`, and folders with all that is in them. A file that is to be replaced while the
    /// node runs is another one then: its folder is what to name.
    #[must_use]
    pub fn sandbox(&self, readable: impl IntoIterator<Item = PathBuf>) -> Sandbox {
        // They are looked at again as often as a peer shows who it is, and replaced by who renews or revokes.
        let credential = self.config.credential.iter().flat_map(|credential| folders(credential.path()));
        let readable = readable.into_iter().chain(credential).collect();
        let controllers = self.config.controller.as_ref().map(|controller| controller.addresses.as_str());
        sandbox::of_node(&self.node.socket_paths, controllers, readable)
    }
}

/// The folder that a name is in, and that of the file that it stands for, if it is a link.
fn folders(path: &Path) -> Vec<PathBuf> {
    let names = [std::path::absolute(path), path.canonicalize()];
    names.into_iter().flatten().filter_map(|path| path.parent().map(Path::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_by_its_name_and_by_what_that_stands_for() {
        let folder = tempfile::tempdir().unwrap();
        let (names, files) = (folder.path().join("names"), folder.path().join("files"));
        for folder in [&names, &files] {
            std::fs::create_dir(folder).unwrap();
        }
        std::fs::write(files.join("n1.pem"), "").unwrap();
        std::os::unix::fs::symlink(files.join("n1.pem"), names.join("n1.pem")).unwrap();
        assert_eq!(folders(&names.join("n1.pem")), [names.clone(), files.canonicalize().unwrap()]);
        assert_eq!(folders(&names.join("none.pem")), [names]);
    }
}
