//! Results on standard output, progress on standard error.

use std::io::{ErrorKind, Write as _};

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use yonder_bench::OnProgress;

/// Nobody reads standard output any more, as after `yonder bench array --json | head -1`: no failure, but the end.
#[derive(Debug)]
pub(crate) struct OutputClosed;

impl std::fmt::Display for OutputClosed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("standard output is closed")
    }
}

impl std::error::Error for OutputClosed {}

/// Writes one JSON object on a line of its own. Fails with [`OutputClosed`] if nobody reads it.
pub(crate) fn json_line(object: &impl Serialize) -> anyhow::Result<()> {
    line(&serde_json::to_string(object)?)
}

/// Writes a line, or several with line ends between. Fails with [`OutputClosed`] if nobody reads it.
pub(crate) fn line(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(OutputClosed.into()),
        result => result.context("cannot write the result to standard output"),
    }
}

/// A bar on standard error, with a label that names what runs. Nothing is drawn where standard error is no terminal.
pub(crate) struct Bar {
    bar: ProgressBar,
}

impl Bar {
    pub(crate) fn new(title: &str) -> Self {
        const STEPS: u64 = 1000;
        let style = ProgressStyle::with_template("{prefix} {wide_bar:.cyan/dim} {percent:>3}% {msg}");
        let bar = ProgressBar::new(STEPS).with_prefix(title.to_owned());
        if let Ok(style) = style {
            bar.set_style(style);
        }
        Self { bar }
    }

    /// Shows that `share` (0 to 1) of `what` is done.
    pub(crate) fn show(&self, what: &str, share: f64) {
        if self.bar.message() != what {
            self.bar.set_message(what.to_owned());
        }
        self.bar.set_position((share.clamp(0.0, 1.0) * 1000.0) as u64);
    }

    /// Writes to standard error without disturbing the bar.
    pub(crate) fn beside(&self, write: impl FnOnce()) {
        self.bar.suspend(write);
    }
}

/// Does `work` under a bar, to which it tells how far it is.
pub(crate) fn with_bar<R>(title: &str, work: impl FnOnce(OnProgress<'_>) -> R) -> R {
    let bar = Bar::new(title);
    work(&mut |what, share| bar.show(what, share))
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
