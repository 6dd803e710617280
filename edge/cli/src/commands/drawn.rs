//! Pictures and bars as SVG files, where a command was asked for them.

use std::path::{Path, PathBuf};

use yonder_report::{Bars, Picture, write_pictures};

/// Writes pictures into `directory`, if it is given, without those that have nothing to show.
pub(super) fn write(pictures: Vec<Picture>, directory: Option<&Path>) -> anyhow::Result<()> {
    let Some(directory) = directory else { return Ok(()) };
    let shown: Vec<_> = pictures.into_iter().filter_map(without_empty_lines).collect();
    tell(&write_pictures(&shown, directory)?);
    Ok(())
}

/// The same of bars.
pub(super) fn write_bars(bars: &[Bars], directory: Option<&Path>) -> anyhow::Result<()> {
    let Some(directory) = directory else { return Ok(()) };
    tell(&yonder_report::write_bars(bars, directory)?);
    Ok(())
}

fn tell(paths: &[PathBuf]) {
    paths.iter().for_each(|path| eprintln!("picture: {}", path.display()));
}

/// What there is to show of a picture; nothing if that is nothing.
pub(super) fn without_empty_lines(mut picture: Picture) -> Option<Picture> {
    picture.lines.retain(|line| !line.points.is_empty());
    (!picture.lines.is_empty()).then_some(picture)
}
