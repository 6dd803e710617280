//! A thread of the node that panics ends the process: [`crashing`].
//!
//! The others would go on without it: data threads would serve what no slow path frees, and clients would wait for
//! answers until their deadlines. A panic is a broken invariant of the node, so nothing that it says counts any more.
//! Its clients see that it has ended, and fail closed.

use std::thread;

/// `body`, or the end of the process with a message if it panics.
pub(crate) fn crashing(body: impl FnOnce() + Send + 'static) -> impl FnOnce() + Send + 'static {
    move || {
        let _crash = Crash;
        body();
    }
}

/// Ends the process when it is dropped by a panic.
struct Crash;

impl Drop for Crash {
    fn drop(&mut self) {
        if thread::panicking() {
            // Not by the log, which may be off, or what has panicked.
            let name = thread::current().name().unwrap_or("without a name").to_owned();
            eprintln!("yonder: thread {name} of the memory node has panicked: the node ends, and its memory is lost");
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use crate::{Listen, Node, NodeConfig};

    const CHILD: &str = "YONDER_TEST_CRASH_CHILD";

    /// The child of the test below: its node's slow path panics. It ends well if the node goes on.
    #[test]
    fn child() {
        if std::env::var_os(CHILD).is_none() {
            return;
        }
        let node = Node::start(NodeConfig::new(vec![Listen::Tcp("127.0.0.1:0".to_owned())], 1 << 20)).unwrap();
        let none: Option<()> = node.shared.on_slow_path(|_, _| panic!("on purpose"));
        assert_eq!(none, None);
        node.stop();
    }

    #[test]
    fn a_thread_that_panics_ends_the_process_with_a_message() {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "crash::tests::child", "--nocapture"]).env(CHILD, "1");
        let ended = child.output().unwrap();
        let stderr = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success(), "the node goes on without its slow path: {stderr}");
        assert!(stderr.contains("thread yonder-slow of the memory node has panicked"), "{stderr}");
    }
}
