//! Tables and JSON on standard output; progress on standard error.

use std::io::{IsTerminal, Write};

use serde_json::Value;

use crate::args::Output;

/// A column of a table: its title, and a cell's text.
pub type Column = (&'static str, fn(&Value) -> String);

/// Prints `items` as JSON, or as a table of `columns` (title, and the cell's text).
pub fn list(output: Output, items: &[Value], columns: &[Column], empty: &str) {
    if output == Output::Json {
        print(&serde_json::json!({"items": items}));
        return;
    }
    if items.is_empty() {
        eprintln!("{empty}");
        return;
    }
    let mut rows: Vec<Vec<String>> = vec![columns.iter().map(|(title, _)| (*title).to_owned()).collect()];
    rows.extend(items.iter().map(|item| columns.iter().map(|(_, cell)| cell(item)).collect()));
    print_text(&table(&rows));
}

/// Pretty JSON.
pub fn print(value: &Value) {
    print_text(&format!("{value:#}\n"));
}

/// Writes text; a reader that closed the pipe (`| head`) is not an error.
pub fn print_text(text: &str) {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

fn table(rows: &[Vec<String>]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows.first().map_or(0, Vec::len)).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', width + 3 - cell.chars().count()));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A cell: the field's text, or `-`.
pub fn text(item: &Value, field: &str) -> String {
    match &item[field] {
        Value::String(text) if !text.is_empty() => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => "-".to_owned(),
    }
}

/// How long ago an RFC 3339 time was, as kubectl says it.
pub fn age(item: &Value, field: &str) -> String {
    let Some(at) = item[field].as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok()) else { return "-".to_owned() };
    let seconds = jiff::Timestamp::now().as_second().saturating_sub(at.as_second()).max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// One line that changes in place on a terminal, and lines otherwise.
#[derive(Default)]
pub struct Progress {
    last: String,
}

impl Progress {
    pub fn say(&mut self, line: &str) {
        if line == self.last {
            return;
        }
        if std::io::stderr().is_terminal() {
            eprint!("\r\x1b[K{line}");
        } else {
            eprintln!("{line}");
        }
        line.clone_into(&mut self.last);
    }

    /// Ends the line.
    pub fn end(&mut self) {
        if !self.last.is_empty() && std::io::stderr().is_terminal() {
            eprintln!();
        }
        self.last.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_end_without_blanks() {
        let rows = [["NAME", "STATE"], ["a", "Ready"], ["longer", "-"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(table(&rows), "NAME     STATE\na        Ready\nlonger   -\n");
    }
}
