//! A text screen over anything that can draw a character cell.
//!
//! Reading video memory is slow and drawing glyphs costs, so the wanted contents are kept in RAM, and after each piece of
//! output only the cells that differ from what is shown are drawn. Scrolling moves by a third of the screen.

/// Most columns that are used.
pub const MAX_COLUMNS: usize = 240;
/// Most rows that are used.
pub const MAX_ROWS: usize = 75;

/// Draws cells.
pub trait Canvas {
    /// Columns and rows.
    fn size(&self) -> (usize, usize);
    /// Draws a printable ASCII character at column and row, both inside the size.
    fn draw(&mut self, column: usize, row: usize, character: u8);
}

type Grid = [[u8; MAX_COLUMNS]; MAX_ROWS];

/// The screen's contents. Zero stands for a blank, so that the whole starts as zeroes.
pub struct Screen {
    wanted: Grid,
    /// What was drawn last; `u8::MAX` is not drawn yet.
    shown: Grid,
    column: usize,
    row: usize,
    /// Whether `shown` means anything.
    drawn: bool,
}

impl Screen {
    /// Empty; the first output draws every cell.
    pub const fn new() -> Self {
        Screen {
            wanted: [[0; MAX_COLUMNS]; MAX_ROWS],
            shown: [[0; MAX_COLUMNS]; MAX_ROWS],
            column: 0,
            row: 0,
            drawn: false,
        }
    }

    /// Takes text, then draws what changed.
    pub fn write(&mut self, bytes: &[u8], canvas: &mut impl Canvas) {
        let (columns, rows) = canvas.size();
        let (columns, rows) = (columns.min(MAX_COLUMNS), rows.min(MAX_ROWS));
        if columns == 0 || rows == 0 {
            return;
        }
        for &b in bytes {
            self.take(b, columns, rows);
        }
        for row in 0..rows {
            for column in 0..columns {
                let want = self.wanted[row][column];
                if !self.drawn || self.shown[row][column] != want {
                    self.shown[row][column] = want;
                    canvas.draw(column, row, if want == 0 { b' ' } else { want });
                }
            }
        }
        self.drawn = true;
    }

    fn take(&mut self, byte: u8, columns: usize, rows: usize) {
        match byte {
            b'\n' => {
                self.column = 0;
                self.row += 1;
            }
            b'\r' => self.column = 0,
            b'\t' => self.column = (self.column + 8) & !7,
            8 => self.column = self.column.saturating_sub(1),
            // Bytes beyond ASCII and other control characters.
            _ => {
                if self.column >= columns {
                    self.column = 0;
                    self.row += 1;
                }
                self.make_room(rows);
                let printable = byte.is_ascii_graphic() || byte == b' ';
                self.wanted[self.row][self.column] = if printable { byte } else { b'?' };
                self.column += 1;
            }
        }
        self.make_room(rows);
    }

    fn make_room(&mut self, rows: usize) {
        if self.row < rows {
            return;
        }
        let by = (rows / 3).max(1).min(self.row);
        self.wanted.copy_within(by..rows, 0);
        for row in &mut self.wanted[rows - by..rows] {
            row.fill(0);
        }
        self.row -= by;
    }
}

impl Default for Screen {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::String;
    use std::vec::Vec;

    struct Fake {
        cells: Vec<Vec<u8>>,
        draws: usize,
    }

    impl Fake {
        fn new(columns: usize, rows: usize) -> Self {
            Fake {
                cells: vec![vec![b'#'; columns]; rows],
                draws: 0,
            }
        }
        fn line(&self, row: usize) -> String {
            String::from_utf8(self.cells[row].clone()).unwrap()
        }
    }

    impl Canvas for Fake {
        fn size(&self) -> (usize, usize) {
            (self.cells[0].len(), self.cells.len())
        }
        fn draw(&mut self, column: usize, row: usize, character: u8) {
            self.draws += 1;
            self.cells[row][column] = character;
        }
    }

    #[test]
    fn draws_only_differences() {
        let mut screen = Box::new(Screen::new());
        let mut c = Fake::new(10, 4);
        screen.write(b"ab\n", &mut c);
        assert_eq!((c.draws, c.line(0).as_str()), (40, "ab        "));
        screen.write(b"cd", &mut c);
        assert_eq!((c.draws, c.line(1).as_str()), (42, "cd        "));
    }

    #[test]
    fn wraps_and_scrolls() {
        let mut screen = Box::new(Screen::new());
        let mut c = Fake::new(4, 3);
        screen.write(b"abcdef\n1\n2\n3\n4", &mut c);
        assert_eq!([c.line(0), c.line(1), c.line(2)], ["2   ", "3   ", "4   "]);
    }

    #[test]
    fn odd_bytes_and_sizes_are_harmless() {
        let mut screen = Box::new(Screen::new());
        for (columns, rows) in [(1, 1), (3, 2), (MAX_COLUMNS + 9, MAX_ROWS + 9)] {
            let mut c = Fake::new(columns, rows);
            let all: Vec<u8> = (0..=255).cycle().take(20_000).collect();
            screen.write(&all, &mut c);
        }
    }
}
