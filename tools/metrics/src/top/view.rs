//! The model on a terminal of 80 by 24 or more.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Padding, Paragraph, Row, Sparkline, Table, Wrap};

use super::model::{ERRORS_IN_ALL, Memory, Model, STAGE_HEADS};
use super::quantity;
use crate::names;

/// How each of [`names::STATES`] is drawn: differently shaped, for terminals without colours.
const STATE_MARKS: [(&str, Color, &str); names::STATES.len()] = [
    ("█", Color::Green, "resident"),
    ("▓", Color::Cyan, "standby"),
    ("▒", Color::Yellow, "dirty"),
    ("░", Color::Blue, "buffer"),
    ("·", Color::DarkGray, "free"),
];

/// Most lines that what only one kind of server has may take.
const EXTRA_LINES_MAX: usize = 3;
/// About as wide as a name with its value.
const PIECE_WIDTH: usize = 24;

/// Draws everything.
pub(super) fn view(frame: &mut Frame, model: &Model) {
    let extras = extra_line(model);
    // A piece that does not fit at the end of a line moves on to the next as a whole.
    let line_width = usize::from(frame.area().width).saturating_sub(PIECE_WIDTH).max(1);
    let extra_height = extras.width().div_ceil(line_width).min(EXTRA_LINES_MAX) as u16;
    let [title, memory, middle, extra, curves] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(5),
        Constraint::Length(12),
        Constraint::Length(extra_height),
        Constraint::Min(3),
    ])
    .areas(frame.area());
    draw_title(frame, title, model);
    draw_memory(frame, memory, model);
    let [rates, stages] = Layout::horizontal([Constraint::Length(30), Constraint::Min(50)]).areas(middle);
    draw_rates(frame, rates, model);
    draw_stages(frame, stages, model);
    frame.render_widget(Paragraph::new(extras).wrap(Wrap { trim: false }), extra);
    let [requests, faults] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(curves);
    draw_curve(frame, requests, "requests", model.requests.iter(), Color::Green);
    draw_curve(frame, faults, "major faults", model.faults.iter(), Color::Yellow);
}

fn draw_title(frame: &mut Frame, area: Rect, model: &Model) {
    let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Length(8)]).areas(area);
    frame.render_widget(Line::from(vec![" yonder top  ".bold(), model.address.as_str().into()]), left);
    frame.render_widget(Line::from("q quits ".dim()).right_aligned(), right);
}

fn draw_memory(frame: &mut Frame, area: Rect, model: &Model) {
    let Some(memory) = model.memory() else {
        let none = Paragraph::new(" this server keeps nothing in far memory".dim());
        frame.render_widget(none.block(Block::bordered().title(" local memory ")), area);
        return;
    };
    let (limit, peak) = (quantity::pages(memory.limit), quantity::pages(memory.peak));
    let block = Block::bordered().title(format!(" local memory: limit {limit}, peak {peak} "));
    let inner = block.inner(area);
    let [cells, legend] = Layout::vertical([Constraint::Length(1), Constraint::Length(2)]).areas(inner);
    frame.render_widget(block, area);
    frame.render_widget(bar(&memory, cells.width), cells);
    let columns: [Rect; STATE_MARKS.len()] = Layout::horizontal([Constraint::Fill(1); STATE_MARKS.len()]).areas(legend);
    for (((mark, colour, name), pages), column) in STATE_MARKS.into_iter().zip(memory.states).zip(columns) {
        let name = Line::from(vec![format!(" {mark} ").fg(colour), name.dim()]);
        let size = Line::from(format!("   {}", quantity::pages(pages)));
        frame.render_widget(Paragraph::new(vec![name, size]), column);
    }
}

/// The states beside each other, in `width` cells. Each ends where its share of all pages ends, rounded, so that all
/// together fill the width exactly.
fn bar(memory: &Memory, width: u16) -> Line<'static> {
    let total = memory.states.iter().sum::<u64>().max(1);
    let mut pages_before = 0;
    let mut cells_before = 0;
    let spans = STATE_MARKS.iter().zip(memory.states).map(|((mark, colour, _), pages)| {
        pages_before += pages;
        let end = (pages_before as f64 / total as f64 * f64::from(width)).round() as usize;
        let cells = end - cells_before;
        cells_before = end;
        mark.repeat(cells).fg(*colour)
    });
    Line::from_iter(spans)
}

fn draw_rates(frame: &mut Frame, area: Rect, model: &Model) {
    let block = Block::bordered().title(" now ");
    let width = usize::from(block.inner(area).width).saturating_sub(16);
    let alarming = model.errors() > 0.0;
    let line = |(name, value): (String, String)| {
        let style = if alarming && name == ERRORS_IN_ALL { Style::new().red().bold() } else { Style::new() };
        Line::from(vec![format!(" {name:<14}").dim(), Span::styled(format!("{value:>width$}"), style)])
    };
    let lines: Vec<_> = model.common_rows().into_iter().map(line).collect();
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn draw_stages(frame: &mut Frame, area: Rect, model: &Model) {
    let right = |text: &str| Line::from(text.to_owned()).right_aligned();
    let heads = ["", "stage"].map(Line::from).into_iter().chain(STAGE_HEADS.map(right));
    let rows = model.stage_rows().into_iter().map(|row| {
        let names = [Line::from(row.of).dim(), Line::from(row.stage)];
        let style = if row.stage == "total" { Style::new().bold() } else { Style::new() };
        Row::new(names.into_iter().chain(row.times.iter().map(|time| right(time)))).style(style)
    });
    let block = Block::bordered().title(" times ").padding(Padding::left(1));
    let widths = [7, 7, 7, 7, 7, 7].map(Constraint::Length);
    let table = Table::new(rows, widths).header(Row::new(heads).dim()).block(block);
    frame.render_widget(table, area);
}

/// Why the numbers stand still, or else what only this kind of server has.
fn extra_line(model: &Model) -> Line<'static> {
    if let Some(why) = &model.trouble {
        return Line::from(format!(" {why}").red());
    }
    let unbroken = |text: String| text.replace(' ', "\u{a0}");
    let piece = |(name, value)| [" ".into(), unbroken(format!("{name} ")).dim(), unbroken(value).into(), " ".into()];
    Line::from_iter(model.extra_rows().into_iter().flat_map(piece))
}

fn draw_curve<'a>(
    frame: &mut Frame,
    area: Rect,
    name: &str,
    history: impl ExactSizeIterator<Item = &'a u64>,
    colour: Color,
) {
    let block = Block::bordered();
    let width = usize::from(block.inner(area).width);
    let hidden = history.len().saturating_sub(width);
    let seen: Vec<u64> = history.skip(hidden).copied().collect();
    let most = seen.iter().max().copied().unwrap_or(0);
    let block = block.title(format!(" {name}, at most {} ", quantity::per_second(most as f64)));
    frame.render_widget(Sparkline::default().data(seen).style(Style::new().fg(colour)).block(block), area);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::top::model::tests::full_model;

    fn drawn(model: &Model, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| view(frame, model)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let cells: Vec<_> = buffer.content().iter().map(|cell| cell.symbol()).collect();
        cells.chunks(usize::from(width)).map(|row| row.concat().replace('\u{a0}', " ").trim_end().to_owned()).collect()
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
            assert_eq!(drawn(&full_model(), width, height).len(), usize::from(height));
        }
    }

    #[test]
    fn the_bar_fills_its_width() {
        for states in [[0; 5], [1, 1, 1, 1, 1], [7, 0, 0, 3, 100_000], [u64::from(u32::MAX), 1, 2, 3, 4]] {
            let memory = Memory { limit: 1, peak: 1, states };
            for width in [0, 1, 2, 77, 300] {
                let expected = if states == [0; 5] { 0 } else { usize::from(width) };
                assert_eq!(bar(&memory, width).width(), expected, "{states:?} in {width}");
            }
        }
    }
}
