//! A result for people: lines and tables, as plain text or as Markdown.

use comfy_table::{CellAlignment, ContentArrangement, presets};

use crate::{Style, Tone};

/// Where the text of a column stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// One row of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// One text a column.
    pub cells: Vec<String>,
    /// Emphasis of the whole row.
    pub tone: Tone,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// What it shows; may be empty.
    pub title: String,
    /// Name and alignment of each column.
    pub columns: Vec<(String, Align)>,
    /// The rows.
    pub rows: Vec<Row>,
}

impl Table {
    /// A table without rows. Columns whose name starts with `>` are aligned right.
    pub fn new(title: impl Into<String>, columns: &[&str]) -> Table {
        let column = |name: &&str| match name.strip_prefix('>') {
            Some(rest) => (rest.to_owned(), Align::Right),
            None => ((*name).to_owned(), Align::Left),
        };
        Table {
            title: title.into(),
            columns: columns.iter().map(column).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.toned(cells, Tone::Plain);
    }

    /// Adds a row in a tone.
    pub fn toned(&mut self, cells: Vec<String>, tone: Tone) {
        self.rows.push(Row { cells, tone });
    }

    /// Its lines, the header first; with Markdown's frame and rule if asked.
    fn lines(&self, markdown: bool) -> Vec<String> {
        let mut table = comfy_table::Table::new();
        table.load_preset(if markdown { presets::ASCII_MARKDOWN } else { presets::NOTHING });
        table.set_content_arrangement(ContentArrangement::Disabled);
        let clean = |text: &str| {
            if markdown { text.replace('|', "\\|") } else { text.to_owned() }
        };
        table.set_header(self.columns.iter().map(|(name, _)| clean(name)));
        for row in &self.rows {
            table.add_row(row.cells.iter().map(|c| clean(c)));
        }
        for (i, (_, align)) in self.columns.iter().enumerate() {
            if let Some(column) = table.column_mut(i) {
                column.set_cell_alignment(match align {
                    Align::Left => CellAlignment::Left,
                    Align::Right => CellAlignment::Right,
                });
            }
        }
        table.lines().map(|l| l.trim_end().to_owned()).collect()
    }

    fn human(&self, style: Style) -> Vec<String> {
        let mut out = Vec::new();
        if !self.title.is_empty() {
            out.push(style.paint(&self.title, Tone::Strong));
        }
        for (i, line) in self.lines(false).iter().enumerate() {
            let tone = match i {
                0 => Tone::Dim,
                _ => self.rows.get(i - 1).map_or(Tone::Plain, |r| r.tone),
            };
            out.push(style.paint(line, tone));
        }
        out
    }

    fn markdown(&self) -> Vec<String> {
        let mut out = Vec::new();
        if !self.title.is_empty() {
            out.extend([format!("**{}**", self.title), String::new()]);
        }
        let mut lines = self.lines(true);
        // The rule says which columns hold numbers.
        if let Some(rule) = lines.get_mut(1) {
            let cells = self.columns.iter().map(|(_, align)| match align {
                Align::Left => "---",
                Align::Right => "---:",
            });
            *rule = format!("| {} |", cells.collect::<Vec<_>>().join(" | "));
        }
        out.extend(lines);
        out
    }
}

/// One part of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// A sentence.
    Line(String, Tone),
    /// Lines whose spacing matters.
    Fixed(Vec<String>),
    /// A table.
    Table(Table),
}

/// A result for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// What was asked, in one line.
    pub summary: String,
    /// The answer.
    pub blocks: Vec<Block>,
    /// What to be careful about.
    pub warnings: Vec<String>,
    /// The next command.
    pub hint: Option<String>,
}

impl Document {
    /// A document with a summary only.
    pub fn new(summary: impl Into<String>) -> Document {
        Document { summary: summary.into(), ..Document::default() }
    }

    /// Adds a sentence.
    pub fn line(&mut self, text: impl Into<String>) {
        self.blocks.push(Block::Line(text.into(), Tone::Plain));
    }

    /// Adds a table, unless it has no rows.
    pub fn table(&mut self, table: Table) {
        if !table.rows.is_empty() {
            self.blocks.push(Block::Table(table));
        }
    }

    /// Summary and answer for a terminal. Warnings and hint are left to the caller, who may have
    /// another place for them.
    pub fn human(&self, style: Style) -> String {
        let mut out = style.paint(&self.summary, Tone::Strong);
        out.push('\n');
        let mut before_line = false;
        for block in &self.blocks {
            let is_line = matches!(block, Block::Line(..));
            if !(is_line && before_line) {
                out.push('\n');
            }
            before_line = is_line;
            let lines = match block {
                Block::Line(text, tone) => vec![style.paint(text, *tone)],
                Block::Fixed(lines) => lines.clone(),
                Block::Table(table) => table.human(style),
            };
            for line in lines {
                out.push_str(line.trim_end());
                out.push('\n');
            }
        }
        out
    }

    /// Summary and answer as Markdown.
    pub fn markdown(&self) -> String {
        let mut out = format!("{}\n", self.summary);
        for block in &self.blocks {
            out.push('\n');
            let lines = match block {
                Block::Line(text, _) => vec![text.clone()],
                Block::Fixed(lines) => {
                    let mut fenced = vec!["```text".to_owned()];
                    fenced.extend(lines.iter().map(|l| l.trim_end().to_owned()));
                    fenced.push("```".to_owned());
                    fenced
                }
                Block::Table(table) => table.markdown(),
            };
            for line in lines {
                out.push_str(&line);
                out.push('\n');
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> Document {
        let mut document = Document::new("What was asked");
        let mut table = Table::new("Numbers", &["name", ">value"]);
        table.row(vec!["a|b".into(), "1.5".into()]);
        table.toned(vec!["c".into(), "10.25".into()], Tone::Dim);
        document.table(table);
        document.table(Table::new("Empty", &["nothing"]));
        document.line("One.");
        document.line("Two.");
        document.blocks.push(Block::Fixed(vec!["▁█ ".into()]));
        document
    }

    #[test]
    fn human_text_aligns_numbers_and_leaves_no_trailing_space() {
        let text = document().human(Style::PLAIN);
        let expected = "What was asked\n\nNumbers\n name  value\n a|b     1.5\n c     10.25\n\n\
                        One.\nTwo.\n\n▁█\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn colour_changes_nothing_but_escape_codes() {
        let coloured = document().human(Style { colour: true });
        let mut bare = String::new();
        let mut inside = false;
        for c in coloured.chars() {
            match c {
                '\u{1b}' => inside = true,
                'm' if inside => inside = false,
                _ if inside => {}
                _ => bare.push(c),
            }
        }
        assert_ne!(coloured, bare);
        assert_eq!(bare, document().human(Style::PLAIN));
    }

    #[test]
    fn markdown_escapes_bars_and_says_which_columns_are_numbers() {
        let text = document().markdown();
        assert!(text.contains("| a\\|b |"), "{text}");
        assert!(text.contains("| --- | ---: |"), "{text}");
        assert!(text.contains("```text\n▁█\n```"), "{text}");
    }
}
