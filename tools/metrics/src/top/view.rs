//! The model on a terminal of 80 by 24 or more.

use super::model::{ERRORS_IN_ALL, Memory, Model, STAGE_HEADS, TENANT_HEADS, TenantRow};
use super::quantity;
use super::screen::{Area, BOLD, Colour, DIM, PLAIN, Screen, Span, Style, coloured};
use crate::names;

/// How each of [`names::STATES`] is drawn: differently shaped, for terminals without colours.
const STATE_MARKS: [(&str, Colour, &str); names::STATES.len()] = [
    ("█", Colour::Green, "resident"),
    ("▓", Colour::Cyan, "standby"),
    ("▒", Colour::Yellow, "dirty"),
    ("░", Colour::Blue, "buffer"),
    ("·", Colour::DarkGrey, "free"),
];
/// A cell of a curve that is filled by so many eighths.
const EIGHTHS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// Most lines that what only one kind of server has may take.
const EXTRA_LINES_MAX: usize = 3;
/// What the user may press.
const KEYS: &str = "q quits ";
/// Columns that the rates take, with their frame.
const RATES_WIDTH: usize = 30;

/// Columns that a number of a tenant takes.
const TENANT_WIDTH: usize = 12;

/// How what is not as it should be looks.
const ALARM: Style = Style { bold: true, ..coloured(Colour::Red) };

/// Draws everything.
pub(super) fn view(screen: &mut Screen, model: &Model) {
    let mut rest = screen.area();
    draw_title(screen, rest.take_lines(1), model);
    draw_memory(screen, rest.take_lines(5), model);
    let (middle, tenants) = (rest.take_lines(12), model.tenant_rows());
    if tenants.is_empty() {
        let [rates, stages] = middle.split_at(RATES_WIDTH);
        draw_rates(screen, rates, model);
        draw_stages(screen, stages, model);
    } else {
        // A memory node has neither requests of its own nor faults.
        draw_tenants(screen, middle, &tenants);
    }
    let mut extras = lines_of(protection_pieces(model), rest.width);
    extras.append(&mut lines_of(extra_pieces(model), rest.width));
    let extra = rest.take_lines(extras.len());
    extras.iter().enumerate().for_each(|(number, line)| screen.write(extra, number, line));
    let [requests, faults] = rest.columns();
    draw_curve(screen, requests, "requests", model.requests.iter(), Colour::Green);
    draw_curve(screen, faults, "major faults", model.faults.iter(), Colour::Yellow);
}

fn draw_title(screen: &mut Screen, area: Area, model: &Model) {
    let [left, right] = area.split_at(area.width.saturating_sub(KEYS.len()));
    screen.write(left, 0, &[Span::new(" yonder top  ", BOLD), Span::new(model.address.as_str(), PLAIN)]);
    screen.write(right, 0, &[Span::new(KEYS, DIM)]);
}

fn draw_memory(screen: &mut Screen, area: Area, model: &Model) {
    let Some(memory) = model.memory() else {
        let inner = screen.frame(area, " local memory ");
        return screen.write(inner, 0, &[Span::new(" this server keeps nothing in far memory", DIM)]);
    };
    let (limit, peak) = (quantity::pages(memory.limit), quantity::pages(memory.peak));
    let inner = screen.frame(area, &format!(" local memory: limit {limit}, peak {peak} "));
    screen.write(inner, 0, &bar(&memory, inner.width));
    let columns: [Area; STATE_MARKS.len()] = inner.columns();
    for (((mark, colour, name), pages), column) in STATE_MARKS.into_iter().zip(memory.states).zip(columns) {
        screen.write(column, 1, &[Span::new(format!(" {mark} "), coloured(colour)), Span::new(name, DIM)]);
        screen.write(column, 2, &[Span::new(format!("   {}", quantity::pages(pages)), PLAIN)]);
    }
}

/// The states beside each other, in `width` cells. Each ends where its share of all pages ends, rounded, so that all
/// together fill the width exactly.
fn bar(memory: &Memory, width: usize) -> Vec<Span> {
    // Numbers of a server that need not be true.
    let total = memory.states.iter().map(|pages| *pages as f64).sum::<f64>().max(1.0);
    let mut pages_before = 0.0;
    let mut cells_before = 0;
    let spans = STATE_MARKS.iter().zip(memory.states).map(|((mark, colour, _), pages)| {
        pages_before += pages as f64;
        let end = ((pages_before / total * width as f64).round() as usize).clamp(cells_before, width);
        let cells = end - cells_before;
        cells_before = end;
        Span::new(mark.repeat(cells), coloured(*colour))
    });
    spans.collect()
}

fn draw_rates(screen: &mut Screen, area: Area, model: &Model) {
    let inner = screen.frame(area, " now ");
    let width = inner.width.saturating_sub(16);
    let alarming = model.errors() > 0.0;
    for (number, (name, value)) in model.common_rows().into_iter().enumerate() {
        let style = if alarming && name == ERRORS_IN_ALL { ALARM } else { PLAIN };
        let line = [Span::new(format!(" {name:<14}"), DIM), Span::new(format!("{value:>width$}"), style)];
        screen.write(inner, number, &line);
    }
}

fn draw_stages(screen: &mut Screen, area: Area, model: &Model) {
    let inner = screen.frame(area, " times ");
    let row = |of: &str, stage: &str, times: [&str; STAGE_HEADS.len()], looks: [Style; 2]| {
        let times = times.map(|time| format!(" {time:>7}")).concat();
        [Span::new(format!(" {of:<7}"), looks[0]), Span::new(format!(" {stage:<7}{times}"), looks[1])]
    };
    screen.write(inner, 0, &row("", "stage", STAGE_HEADS, [DIM; 2]));
    for (number, stage) in model.stage_rows().iter().enumerate() {
        let style = if stage.stage == "total" { BOLD } else { PLAIN };
        let looks = [Style { dim: true, ..style }, style];
        let times = stage.times.each_ref().map(String::as_str);
        screen.write(inner, number + 1, &row(stage.of, stage.stage, times, looks));
    }
}

/// The tenants with most use, as many as there are lines. Names take what the numbers leave.
fn draw_tenants(screen: &mut Screen, area: Area, tenants: &[TenantRow]) {
    let inner = screen.frame(area, &format!(" tenants: {} ", tenants.len()));
    let width = inner.width.saturating_sub(1 + TENANT_WIDTH * TENANT_HEADS.len());
    let row = |name: &str, cells: [&str; TENANT_HEADS.len()], style: Style| {
        let name: String = name.chars().take(width).collect();
        let cells = cells.map(|cell| format!("{cell:>TENANT_WIDTH$}")).concat();
        [Span::new(format!(" {name:<width$}"), style), Span::new(cells, style)]
    };
    screen.write(inner, 0, &row("tenant", TENANT_HEADS, DIM));
    for (number, tenant) in tenants.iter().enumerate() {
        screen.write(inner, number + 1, &row(&tenant.name, tenant.cells.each_ref().map(String::as_str), PLAIN));
    }
}

/// Why the numbers stand still, or else what only this kind of server has: pieces that are not broken.
fn extra_pieces(model: &Model) -> Vec<Vec<Span>> {
    if let Some(why) = &model.trouble {
        return why.split(' ').map(|word| vec![Span::new(format!(" {word}"), coloured(Colour::Red))]).collect();
    }
    let piece = |(name, value)| vec![Span::new(format!(" {name} "), DIM), Span::new(format!("{value} "), PLAIN)];
    model.extra_rows().into_iter().map(piece).collect()
}

/// How pages are protected that are on several nodes.
fn protection_pieces(model: &Model) -> Vec<Vec<Span>> {
    let style = if model.is_below_protection() { ALARM } else { PLAIN };
    let piece = |(name, value)| vec![Span::new(format!(" {name} "), DIM), Span::new(format!("{value} "), style)];
    model.protection_rows().into_iter().map(piece).collect()
}

/// Lines of `width` cells with as many pieces each as fit, of which there are [`EXTRA_LINES_MAX`] at most.
fn lines_of(pieces: Vec<Vec<Span>>, width: usize) -> Vec<Vec<Span>> {
    let mut lines: Vec<Vec<Span>> = Vec::new();
    let mut left = 0;
    for piece in pieces {
        let needed = piece.iter().map(Span::width).sum();
        match lines.last_mut() {
            Some(line) if needed <= left => line.extend(piece),
            _ => {
                lines.push(piece);
                left = width;
            }
        }
        left = left.saturating_sub(needed);
    }
    lines.truncate(EXTRA_LINES_MAX);
    lines
}

fn draw_curve<'a>(
    screen: &mut Screen,
    area: Area,
    name: &str,
    history: impl ExactSizeIterator<Item = &'a u64>,
    colour: Colour,
) {
    let hidden = history.len().saturating_sub(area.width.saturating_sub(2));
    let seen: Vec<u64> = history.skip(hidden).copied().collect();
    let most = seen.iter().max().copied().unwrap_or(0);
    let inner = screen.frame(area, &format!(" {name}, at most {} ", quantity::per_second(most as f64)));
    let eighths = |value: u64| (value as f64 / most.max(1) as f64 * (inner.height * 8) as f64).round() as usize;
    for line in 0..inner.height {
        let below = (inner.height - 1 - line) * 8;
        let cells: String = seen.iter().map(|value| EIGHTHS[eighths(*value).saturating_sub(below).min(8)]).collect();
        screen.write(inner, line, &[Span::new(cells, coloured(colour))]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::model::tests::{full_model, node_model, spread_model};

    fn drawn(model: &Model, width: usize, height: usize) -> Vec<String> {
        let mut screen = Screen::new(width, height);
        view(&mut screen, model);
        screen.lines()
    }

    /// A server may say what it likes.
    #[test]
    fn numbers_that_are_not_true_fill_the_width_all_the_same() {
        let mut memory = Memory { limit: 1, peak: 1, states: [0; STATE_MARKS.len()] };
        for states in [[1 << 63, 1 << 63, 1], [u64::MAX; 3], [0, 1, u64::MAX]] {
            memory.states[..3].copy_from_slice(&states);
            let cells: usize = bar(&memory, 40).iter().map(|span| span.text.chars().count()).sum();
            assert_eq!(cells, 40, "{states:?}");
        }
    }

    #[test]
    fn the_whole_screen() {
        let expected = r"
 yonder top  127.0.0.1:9185                                             q quits
┌ local memory: limit 64 MiB, peak 62.5 MiB ───────────────────────────────────┐
│████████████████████████████████████████████████▓▓▓▓▓▓▓▓▓▓▓▓▓▓▒▒░░░···········│
│ █ resident      ▓ standby      ▒ dirty         ░ buffer       · free         │
│   39.1 MiB        11.7 MiB       1.6 MiB         2.3 MiB        9.3 MiB      │
└──────────────────────────────────────────────────────────────────────────────┘
┌ now ───────────────────────┐┌ times ─────────────────────────────────────────┐
│ requests           123 k/s ││         stage       P50     P90     P99   P99.9│
│ in service               0 ││ fault   post          -       -       -       -│
│ major faults      1.50 k/s ││ fault   fetch   2.30 us 2.30 us 2.30 us 2.30 us│
│ minor faults        250 /s ││ fault   install       -       -       -       -│
│ in flight                7 ││ fault   resume        -       -       -       -│
│ fetched          12.0 MB/s ││ fault   total   2.82 us 2.82 us 2.82 us 2.82 us│
│ written          2.50 MB/s ││ request queued        -       -       -       -│
│ retries            1.50 /s ││ request running       -       -       -       -│
│ errors                0 /s ││ request waiting       -       -       -       -│
│ errors in all            3 ││ request total   73.7 us 73.7 us 73.7 us 73.7 us│
└────────────────────────────┘└────────────────────────────────────────────────┘
 kv get hits 100 k/s  kv items 55
┌ requests, at most 123 k/s ───────────┐┌ major faults, at most 1.50 k/s ──────┐
│█                                     ││█                                     │
│█                                     ││█                                     │
│█                                     ││█                                     │
└──────────────────────────────────────┘└──────────────────────────────────────┘";
        assert_eq!(format!("\n{}", drawn(&full_model(), 80, 24).join("\n")), expected);
    }

    #[test]
    fn a_node_shows_its_tenants() {
        let screen = drawn(&node_model(), 80, 24);
        let expected = r"
┌ tenants: 3 ──────────────────────────────────────────────────────────────────┐
│ tenant                           requests       bytes      memory        shed│
│ b                                 125 k/s    512 MB/s         0 B        0 /s│
│ app                              1.00 k/s   4.10 MB/s       3 MiB     2.50 /s│
│ 10.0.0.9                                -           -       4 KiB           -│
│                                                                              │";
        assert_eq!(format!("\n{}", screen[6..12].join("\n")), expected);
        assert_eq!((screen[17].chars().next(), screen[18].trim()), (Some('└'), "node spaces 3"));
    }

    #[test]
    fn how_pages_are_protected_has_lines_of_its_own() {
        let screen = drawn(&spread_model(), 80, 24);
        let expected = [
            " any of places 4 of 5  pages below 2.00 k  mended 8.19 MB/s  time left 1.00 s",
            " given up 1  replaced 0  epoch 6  slow 2  hedged 15 /s  late 300 of 16.4 k",
            " kv items 55",
        ];
        assert_eq!(screen[18..21].iter().map(|line| line.trim_end()).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn trouble_is_told_in_full() {
        let mut model = full_model();
        let why = "nothing serves metrics at 127.0.0.1:9185: start a server with --metrics 127.0.0.1:9185";
        model.fail(why.to_owned());
        let screen = drawn(&model, 80, 24);
        assert_eq!(format!("{} {}", screen[18].trim(), screen[19].trim()), why);
    }

    #[test]
    fn any_size_of_terminal_can_be_drawn_on() {
        for (width, height) in [(1, 1), (10, 3), (40, 12), (79, 23), (300, 100)] {
            assert_eq!(drawn(&full_model(), width, height).len(), height);
            assert_eq!(drawn(&node_model(), width, height).len(), height);
        }
    }

    #[test]
    fn the_bar_fills_its_width() {
        for states in [[0; 5], [1, 1, 1, 1, 1], [7, 0, 0, 3, 100_000], [u64::from(u32::MAX), 1, 2, 3, 4]] {
            let memory = Memory { limit: 1, peak: 1, states };
            for width in [0, 1, 2, 77, 300] {
                let expected = if states == [0; 5] { 0 } else { width };
                let filled: usize = bar(&memory, width).iter().map(Span::width).sum();
                assert_eq!(filled, expected, "{states:?} in {width}");
            }
        }
    }
}
