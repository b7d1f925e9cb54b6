//! Tables for display, as text and as HTML.

use std::fmt::Write;

/// Rows of cells with column headings.
#[derive(Clone, Debug)]
pub struct Table {
    pub heads: Vec<String>,
    /// The columns of numbers, which are right-aligned.
    pub numbers: Vec<usize>,
    pub rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(heads: &[&str], numbers: &[usize], rows: Vec<Vec<String>>) -> Table {
        let heads = heads.iter().map(|head| head.to_string()).collect();
        Table { heads, numbers: numbers.to_vec(), rows }
    }

    /// As text, with a line per row.
    pub fn text(&self) -> String {
        let lines: Vec<&Vec<String>> = [&self.heads].into_iter().chain(&self.rows).collect();
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
        let widths: Vec<usize> = (0..self.heads.len()).map(|at| width(at).unwrap_or(0)).collect();
        let mut text = String::new();
        for line in lines {
            let cells = line.iter().zip(&widths).enumerate().map(|(at, (cell, width))| match self
                .numbers
                .contains(&at)
            {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            });
            text += cells.collect::<Vec<_>>().join("  ").trim_end();
            text.push('\n');
        }
        text
    }

    /// As a table of HTML, for notebooks.
    pub fn html(&self) -> String {
        let row = |tag: &str, cells: &mut dyn Iterator<Item = &str>| {
            let cells = cells.map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell)));
            format!("<tr>{}</tr>", cells.collect::<String>())
        };
        let mut text =
            format!("<table>\n{}\n", row("th", &mut self.heads.iter().map(String::as_str)));
        for cells in &self.rows {
            let _ = writeln!(text, "{}", row("td", &mut cells.iter().map(String::as_str)));
        }
        text + "</table>"
    }
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace("  ", "&nbsp;&nbsp;")
}

/// `1234567` as `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(c);
    }
    text
}
