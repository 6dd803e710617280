//! [`Screen`]: a grid of characters that is drawn on in memory, and what a terminal is sent to show it.
//!
//! What lies outside of an area is left out, so that a terminal of any size can be drawn on. A character takes one
//! cell.

/// A colour of the terminal's own palette, by the number that selects it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Colour {
    Red = 31,
    Green = 32,
    Yellow = 33,
    Blue = 34,
    Cyan = 36,
    DarkGrey = 90,
}

/// How characters look.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Style {
    pub(super) colour: Option<Colour>,
    pub(super) bold: bool,
    pub(super) dim: bool,
}

/// As the terminal shows text by itself.
pub(super) const PLAIN: Style = Style { colour: None, bold: false, dim: false };
pub(super) const BOLD: Style = Style { bold: true, ..PLAIN };
pub(super) const DIM: Style = Style { dim: true, ..PLAIN };

/// Text in a colour.
pub(super) const fn coloured(colour: Colour) -> Style {
    Style { colour: Some(colour), ..PLAIN }
}

/// Text that looks the same from its beginning to its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Span {
    pub(super) text: String,
    pub(super) style: Style,
}

impl Span {
    pub(super) fn new(text: impl Into<String>, style: Style) -> Self {
        Self { text: text.into(), style }
    }

    pub(super) fn width(&self) -> usize {
        self.text.chars().count()
    }
}

/// A part of the screen, in cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Area {
    pub(super) x: usize,
    pub(super) y: usize,
    pub(super) width: usize,
    pub(super) height: usize,
}

impl Area {
    /// Takes the first lines of this away.
    pub(super) fn take_lines(&mut self, lines: usize) -> Self {
        let height = lines.min(self.height);
        let taken = Self { height, ..*self };
        self.y += height;
        self.height -= height;
        taken
    }

    /// This as some columns, as wide as each other; the last one takes what is left over.
    pub(super) fn columns<const COUNT: usize>(self) -> [Self; COUNT] {
        let start = |column: usize| (column * self.width + COUNT / 2) / COUNT;
        std::array::from_fn(|column| {
            let (from, to) = (start(column), start(column + 1));
            Self { x: self.x + from, width: to - from, ..self }
        })
    }

    /// The first `width` columns, and the others.
    pub(super) fn split_at(self, width: usize) -> [Self; 2] {
        let width = width.min(self.width);
        [Self { width, ..self }, Self { x: self.x + width, width: self.width - width, ..self }]
    }
}

/// What a terminal is to show.
pub(super) struct Screen {
    width: usize,
    height: usize,
    /// Line by line.
    cells: Vec<(char, Style)>,
}

impl Screen {
    pub(super) fn new(width: usize, height: usize) -> Self {
        Self { width, height, cells: vec![(' ', PLAIN); width * height] }
    }

    /// All of it.
    pub(super) const fn area(&self) -> Area {
        Area { x: 0, y: 0, width: self.width, height: self.height }
    }

    /// Writes spans beside each other into a line of `area`, as far as they fit.
    pub(super) fn write(&mut self, area: Area, line: usize, spans: &[Span]) {
        if line >= area.height {
            return;
        }
        let characters = spans.iter().flat_map(|span| span.text.chars().map(|symbol| (symbol, span.style)));
        let start = (area.y + line) * self.width + area.x;
        for (cell, shown) in self.cells[start..start + area.width].iter_mut().zip(characters) {
            *cell = shown;
        }
    }

    /// Draws a frame with a title along the edge of `area`, and returns what is inside.
    pub(super) fn frame(&mut self, area: Area, title: &str) -> Area {
        let (width, lines) = (area.width.saturating_sub(2), area.height.saturating_sub(2));
        let title: String = title.chars().take(width).collect();
        let bar = "─".repeat(width - title.chars().count());
        self.write(area, 0, &[Span::new(format!("┌{title}{bar}┐"), PLAIN)]);
        for line in 1..=lines {
            self.write(area, line, &[Span::new(format!("│{}│", " ".repeat(width)), PLAIN)]);
        }
        if area.height > 1 {
            self.write(area, lines + 1, &[Span::new(format!("└{}┘", "─".repeat(width)), PLAIN)]);
        }
        Area { x: area.x + area.width.min(1), y: area.y + area.height.min(1), width, height: lines }
    }

    /// The text in each line.
    #[cfg(test)]
    pub(super) fn lines(&self) -> Vec<String> {
        let text = |line: &[(char, Style)]| line.iter().map(|(symbol, _)| symbol).collect::<String>();
        self.cells.chunks(self.width).map(|line| text(line).trim_end().to_owned()).collect()
    }

    /// What makes a terminal of this size show it.
    pub(super) fn to_terminal(&self) -> String {
        let mut text = String::with_capacity(self.cells.len() * 2);
        let mut style = None;
        for (number, line) in self.cells.chunks(self.width.max(1)).enumerate() {
            text.push_str(&format!("\x1b[{};1H", number + 1));
            for (symbol, looks) in line {
                if style != Some(*looks) {
                    text.push_str(&select(*looks));
                    style = Some(*looks);
                }
                text.push(*symbol);
            }
        }
        text.push_str("\x1b[0m");
        text
    }
}

/// What makes a terminal write in this style from now on.
fn select(style: Style) -> String {
    let bold = if style.bold { ";1" } else { "" };
    let dim = if style.dim { ";2" } else { "" };
    let colour = style.colour.map_or(String::new(), |colour| format!(";{}", colour as u8));
    format!("\x1b[0{bold}{dim}{colour}m")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn styles_are_selected_where_they_change() {
        let mut screen = Screen::new(4, 2);
        let red = Style { bold: true, ..coloured(Colour::Red) };
        screen.write(screen.area(), 1, &[Span::new("ab", red), Span::new("c", DIM), Span::new("defg", DIM)]);
        let expected = "\x1b[1;1H\x1b[0m    \x1b[2;1H\x1b[0;1;31mab\x1b[0;2mcd\x1b[0m";
        assert_eq!(screen.to_terminal(), expected);
        assert_eq!(screen.lines(), ["", "abcd"]);
    }

    #[test]
    fn areas_are_divided_without_gaps() {
        let mut area = Area { x: 1, y: 2, width: 78, height: 5 };
        let columns: [Area; 5] = area.columns();
        assert_eq!(columns.map(|column| column.x), [1, 17, 32, 48, 63]);
        assert_eq!(columns.iter().map(|column| column.width).sum::<usize>(), 78);
        let top = area.take_lines(3);
        assert_eq!((top.y, top.height, area.y, area.height), (2, 3, 5, 2));
        assert_eq!(area.take_lines(9).height, 2);
        assert_eq!(area.height, 0);
    }

    #[test]
    fn a_frame_of_any_size_stays_in_its_area() {
        for (width, height) in [(0, 0), (1, 1), (2, 1), (1, 5), (2, 2), (9, 3)] {
            let mut screen = Screen::new(12, 6);
            let inside = screen.frame(Area { x: 1, y: 1, width, height }, " name ");
            assert!(inside.width <= width && inside.height <= height);
            let drawn = screen.lines().concat().chars().filter(|symbol| *symbol != ' ').count();
            assert!(drawn <= width * height, "{width} by {height}: {:?}", screen.lines());
        }
    }
}
