//! `yonder try`: what a program of the user's would be like with its memory far: one table, one picture, one sentence.
//!
//! `yonder_bench::programs` runs it alone, under `yonder run`, and limited to the same memory with swap on zram.

use std::ffi::OsStr;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use tempfile::NamedTempFile;
use yonder::units::format_bytes;
use yonder_bench::programs::{Figures, Own, OwnResult, Scale, Settings, Variant};
use yonder_report::{Line, Picture, Quantity, picture_svg};

use super::bench::{Launcher, run_prefix, stop_on_ctrl_c};
use super::machine::ensure_ready;
use super::run::{find_library, program};
use crate::args::TryArgs;
use crate::output::{Bar, json_line, line};
use crate::table::{bytes, number, print, titled};

/// A program with so little memory says little about far memory.
const SMALL_BYTES: u64 = 32 << 20;
/// How much longer a program may take for its local memory to be advised.
const ADVISED_RATIO_MAX: f64 = 1.25;
/// Bars of the table: so many characters are the longest one.
const BAR_WIDTH_MAX: f64 = 24.0;

pub(crate) fn run(args: &TryArgs) -> anyhow::Result<ExitCode> {
    let svg = args.picture.extension() == Some(OsStr::new("svg"));
    ensure!(svg, "--picture draws an SVG: name a file that ends with .svg, not {}", args.picture.display());
    ensure_ready("yonder try")?;
    program::check(&args.program[0])?;
    find_library()?;
    yonder::open(&args.far)?;
    let launcher = Launcher::new()?;
    let settings = Settings {
        far: args.far.clone(),
        local: args.local.clone(),
        programs: Vec::new(),
        legs: vec![Variant::Native, Variant::Yonder, Variant::Zram],
        scale: Scale::Full,
        runs: args.runs,
        prefix: run_prefix(&launcher)?,
        stop: stop_on_ctrl_c()?,
    };
    let bar = Bar::new("yonder try");
    bar.show("read standard input", 0.0);
    let input = Input::of_this_process()?;
    let own = Own { command: args.program.clone(), input: input.path() };
    let (steps, mut done) = (args.runs * (1 + 2 * args.local.len()), 0);
    let result = own.run(&settings, &launcher, &mut |what| {
        bar.show(what, done as f64 / steps as f64);
        done += 1;
    })?;
    drop(bar);
    if args.json {
        json_line(&result)?;
    } else {
        tell(&result)?;
    }
    draw(&result, &args.program[0], &args.picture)?;
    let words = sentence(&result, args);
    if args.json {
        eprintln!("{words}")
    } else {
        line(&words)?
    }
    eprintln!("picture: {}", args.picture.display());
    let wrong: u64 = result.variants.iter().map(|variant| variant.errors).sum();
    if wrong > 0 {
        bail!("what the program wrote with less local memory differs from what it wrote alone, {wrong} times");
    }
    Ok(ExitCode::SUCCESS)
}

/// What each run of the program reads.
enum Input {
    /// Nothing: there is a terminal.
    Nothing,
    /// A file that each run opens anew.
    File(PathBuf),
    /// What came by a pipe, kept.
    Kept(NamedTempFile),
}

impl Input {
    fn of_this_process() -> anyhow::Result<Self> {
        const OWN: &str = "/proc/self/fd/0";
        let mut input = std::io::stdin();
        let Ok(about) = std::fs::metadata(OWN) else { return Ok(Self::Nothing) };
        if input.is_terminal() || std::fs::read_link(OWN).is_ok_and(|path| path == Path::new("/dev/null")) {
            return Ok(Self::Nothing);
        }
        if about.is_file() {
            return Ok(Self::File(std::fs::read_link(OWN).context("cannot find out what standard input is")?));
        }
        let mut kept = NamedTempFile::new().context("there is no folder for temporary files")?;
        std::io::copy(&mut input, &mut kept).context("cannot keep standard input")?;
        kept.flush()?;
        Ok(Self::Kept(kept))
    }

    fn path(&self) -> Option<PathBuf> {
        match self {
            Self::Nothing => None,
            Self::File(path) => Some(path.clone()),
            Self::Kept(kept) => Some(kept.path().to_owned()),
        }
    }
}

/// A row for each local memory.
fn tell(result: &OwnResult) -> anyhow::Result<()> {
    let [alone, limited @ ..] = &result.variants[..] else { unreachable!("it ran alone") };
    let mut limits: Vec<_> = limited.iter().filter_map(|variant| variant.local_bytes).collect();
    limits.dedup();
    limits.sort_unstable_by_key(|bytes| std::cmp::Reverse(*bytes));
    limits.dedup();
    let longest = limited.iter().filter_map(|variant| variant.ratio).fold(1.0, f64::max);
    let cells = |variant: Option<&Figures>| -> [String; 2] {
        let Some(variant) = variant else { return Default::default() };
        let Some(ratio) = variant.ratio else { return [variant.failed.clone().unwrap_or_default(), String::new()] };
        let wrong = if variant.errors > 0 { " WRONG" } else { "" };
        [format!("{} s{wrong}", number(variant.seconds, 2)), format!("{ratio:.2}x {}", bar_of(ratio / longest))]
    };
    let row = |limit: &u64| {
        let [yonder, zram] = [Variant::Yonder, Variant::Zram].map(|leg| cells(find(result, leg, *limit)));
        let [seconds, more] = yonder;
        let [zram_seconds, zram_more] = zram;
        vec![format_bytes(*limit), seconds, more, zram_seconds, zram_more]
    };
    line(&format!("alone: {} s, {}", number(alone.seconds, 2), bytes(alone.native_peak_bytes)))?;
    let zram = result.swap.as_deref().unwrap_or_default();
    print(&titled(&["local", "yonder run", "", zram, ""], limits.iter().map(row)))?;
    if let Some(why) = &result.no_swap {
        line(&format!("the kernel's swap was not tried: {why}"))?;
    }
    if !result.writes_the_same {
        line("the program does not write the same each time, so what it wrote was not compared")?;
    }
    Ok(())
}

fn bar_of(share: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of the width")]
    let width = (share * BAR_WIDTH_MAX).round().max(1.0) as usize;
    "█".repeat(width)
}

fn find(result: &OwnResult, leg: Variant, local_bytes: u64) -> Option<&Figures> {
    result.variants.iter().find(|variant| variant.leg == leg && variant.local_bytes == Some(local_bytes))
}

/// What to make of it, and what to type.
fn sentence(result: &OwnResult, args: &TryArgs) -> String {
    let name = Path::new(&args.program[0]).file_name().unwrap_or(&args.program[0]).to_string_lossy();
    let alone = &result.variants[0];
    let peak = alone.native_peak_bytes.unwrap_or_default();
    let mut under: Vec<&Figures> = result.variants.iter().filter(|variant| variant.leg == Variant::Yonder).collect();
    under.retain(|variant| variant.ratio.is_some() && variant.errors == 0);
    under.sort_by_key(|variant| variant.local_bytes);
    let quick = under.iter().find(|variant| variant.ratio.is_some_and(|ratio| ratio <= ADVISED_RATIO_MAX));
    let Some(best) = quick.or(under.last()) else {
        return format!("{name} did not run to its end under yonder run: the table says why.");
    };
    let (local, ratio) = (best.local_bytes.unwrap_or_default(), best.ratio.unwrap_or_default());
    let zram = find(result, Variant::Zram, local).and_then(|zram| match zram.ratio {
        Some(ratio) => Some(format!(" ({ratio:.2}x with swap on zram)")),
        None => zram.failed.as_ref().map(|how| format!(" (with swap on zram: {how})")),
    });
    let small = if peak < SMALL_BYTES { ", which is too little for this to say much" } else { "" };
    format!(
        "{name} takes {} alone{small}; with {} of it local it takes {ratio:.2}x as long{}: type `yonder run --far {} \
         --local {}MiB -- {}`",
        format_bytes(peak),
        format_bytes(local),
        zram.unwrap_or_default(),
        quoted(args.far.as_ref()),
        local.div_ceil(1 << 20),
        args.program.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
    )
}

/// A word as a shell takes it.
fn quoted(word: &OsStr) -> String {
    let text = word.to_string_lossy();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=:,%+@".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Local memory against time, as multiples of the program's alone.
fn draw(result: &OwnResult, program: &OsStr, path: &Path) -> anyhow::Result<()> {
    let alone = &result.variants[0];
    let peak = alone.native_peak_bytes.unwrap_or_default();
    let point = |variant: &Figures| Some((variant.local_bytes? as f64, variant.ratio?));
    let curve = |leg: Variant, name: &str| {
        let of_leg = result.variants.iter().filter(|variant| variant.leg == leg);
        let mut points: Vec<(f64, f64)> = of_leg.filter_map(point).collect();
        points.push((peak as f64, 1.0));
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        Line { name: name.to_owned(), points }
    };
    let mut lines = vec![curve(Variant::Yonder, "yonder run")];
    if let Some(swap) = &result.swap {
        lines.push(curve(Variant::Zram, swap));
    }
    let name = Path::new(program).file_name().unwrap_or(program).to_string_lossy();
    let title = format!("{name} with less local memory");
    let caption =
        format!("time as a multiple of that alone, {} s with {}", number(alone.seconds, 2), bytes(Some(peak)));
    let picture = Picture::new("try", [&title, &caption], [Quantity::Memory, Quantity::Number("times as long")], lines);
    let shown = path.display();
    std::fs::write(path, picture_svg(&picture)?)
        .with_context(|| format!("cannot write {shown}: name another file with --picture"))
}
