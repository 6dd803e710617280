//! [`Launcher`]: how this program starts itself and others for benchmarks, and how a user ends one.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use rustix::process::{Signal, set_parent_process_death_signal};
use yonder_bench::scale_clients::ClientTask;
use yonder_bench::{Launch, NodeTask};
use yonder_node::Polling;

use crate::args::{GuardedArgs, ScaleClientArgs};

/// What becomes true with Ctrl-C, for benchmarks that have something to undo.
pub(in crate::commands) fn stop_on_ctrl_c() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let stops = stop.clone();
    ctrlc::set_handler(move || stops.store(true, Ordering::Relaxed))?;
    Ok(stop)
}

/// Starts processes of the program that runs.
pub(in crate::commands) struct Launcher {
    program: PathBuf,
}

impl Launcher {
    pub(in crate::commands) fn new() -> anyhow::Result<Self> {
        Ok(Self { program: std::env::current_exe().context("cannot find this program's file, to start it again")? })
    }

    /// This program's file.
    pub(super) fn program(&self) -> &Path {
        &self.program
    }
}

impl Launch for Launcher {
    fn node(&self, task: &NodeTask) -> Command {
        let mut command = self.guarded(&self.program);
        command.args(["node", "--listen", &task.listen, "--memory", &task.memory.to_string()]);
        command.args(["--metrics", "127.0.0.1:0"]);
        if let Some(bytes) = task.page_bytes {
            command.args(["--page-size", &bytes.to_string()]);
        }
        match task.polling {
            Polling::Adaptive(longest) => command.args(["--spin", &format!("{}us", longest.as_micros())]),
            Polling::Busy => command.arg("--busy-poll"),
        };
        command
    }

    fn client(&self, task: &ClientTask) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["bench", "scale-client", "--node", &task.node, "--size", &task.read_bytes.to_string()]);
        for (flag, time) in [("--period", task.period), ("--first", task.first), ("--duration", task.duration)] {
            command.args([flag, &time.as_nanos().to_string()]);
        }
        if let Some((ticket, address)) = task.shared {
            command.args(["--ticket", &ticket.to_string(), "--address", &address.to_string()]);
        }
        command
    }

    fn guarded(&self, program: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["bench", "guarded", "--"]).arg(program);
        command
    }
}

/// Becomes another program, which the kernel ends when the parent ends, however that ends.
pub(super) fn become_guarded(args: &GuardedArgs) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let (program, arguments) = args.command.split_first().context("no program is named: type one behind --")?;
    let error = Command::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("cannot start {}", program.display()))
}

/// What the flags of a client process mean.
pub(super) fn client_task(args: &ScaleClientArgs) -> ClientTask {
    let time = std::time::Duration::from_nanos;
    ClientTask {
        node: args.node.clone(),
        shared: args.ticket.zip(args.address),
        read_bytes: args.size,
        period: time(args.period),
        first: time(args.first),
        duration: time(args.duration),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser as _;
    use yonder::clib::Ticket;

    use super::*;
    use crate::args::{BenchArgs, BenchWhat, Cli, Command as Subcommand};

    #[test]
    fn a_client_process_is_told_its_task() {
        let launcher = Launcher { program: "yonder".into() };
        for shared in [None, Some((Ticket::new(3, 0xc000_0000_0000_0001), 4096))] {
            let task = ClientTask {
                node: "udp://127.0.0.1:7".to_owned(),
                shared,
                read_bytes: 16,
                period: Duration::from_micros(7),
                first: Duration::ZERO,
                duration: Duration::from_secs(2),
            };
            let command = launcher.client(&task);
            let words = std::iter::once(command.get_program()).chain(command.get_args());
            let Some(Subcommand::Bench(BenchArgs { what: BenchWhat::ScaleClient(args) })) =
                Cli::try_parse_from(words).unwrap().command
            else {
                panic!("another command")
            };
            assert_eq!(client_task(&args), task);
        }
    }

    #[test]
    fn a_node_is_started_as_a_user_would() {
        let launcher = Launcher { program: "yonder".into() };
        let task = NodeTask {
            listen: "udp://127.0.0.1:0".to_owned(),
            memory: 1 << 20,
            page_bytes: Some(4096),
            polling: Polling::Busy,
        };
        let command = launcher.node(&task);
        let words: Vec<_> = command.get_args().skip(3).collect();
        let Some(Subcommand::Node(args)) = Cli::try_parse_from(words).unwrap().command else {
            panic!("another command")
        };
        assert_eq!((args.memory, args.page_size, args.busy_poll), (1 << 20, Some(4096), true));
    }
}
