//! Emphasis on terminals.

/// What emphasis says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// Nothing special.
    #[default]
    Plain,
    /// Headings, and the number that was asked for.
    Strong,
    /// What matters less.
    Dim,
    /// Good news.
    Good,
    /// To be careful about.
    Caution,
    /// Bad news.
    Bad,
}

/// Whether emphasis is written, as ANSI escape codes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Whether to write escape codes.
    pub colour: bool,
}

impl Style {
    /// Text without escape codes.
    pub const PLAIN: Style = Style { colour: false };

    /// The text in a tone.
    ///
    /// ```
    /// use prism_report::{Style, Tone};
    ///
    /// assert_eq!(Style::PLAIN.paint("p95", Tone::Strong), "p95");
    /// assert_eq!(Style { colour: true }.paint("p95", Tone::Strong), "\u{1b}[1mp95\u{1b}[0m");
    /// ```
    pub fn paint(self, text: &str, tone: Tone) -> String {
        let code = match tone {
            _ if !self.colour || text.is_empty() => return text.to_owned(),
            Tone::Plain => return text.to_owned(),
            Tone::Strong => "1",
            Tone::Dim => "2",
            Tone::Good => "32",
            Tone::Caution => "1;33",
            Tone::Bad => "1;31",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}
