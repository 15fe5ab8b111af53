//! A fault of a rules file: where it is, what is wrong, what to do, and how that prints.

use std::fmt;

use serde_json::{Value, json};

use super::SourceFile;
use super::yaml::Span;

/// How many faults a [`RulesError`] prints where it is not rendered in full.
const SHOWN: usize = 20;
/// How much of a source line is shown before and after a fault, in bytes.
const EXCERPT: usize = 120;

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// As given by [`SourceFile::name`].
    pub file: String,
    /// Absent for a fault of the file as a whole.
    pub place: Option<Place>,
    /// The way from the domain to the faulty rule, such as `shop > user_id=42 > rate_limit`; empty
    /// above the first rule.
    pub path: String,
    pub message: String,
    /// What was expected, or what to do.
    pub help: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// In characters, at least 1.
    pub length: usize,
    excerpt: String,
    /// Characters of the excerpt before the fault.
    indent: usize,
}

impl Place {
    pub(super) fn new(text: &str, span: Span) -> Self {
        let offset = floor(text, span.offset());
        let from = floor(text, offset.saturating_sub(EXCERPT));
        let start = text[from..offset].rfind('\n').map_or(from, |at| from + at + 1);
        let rest = &text[offset..floor(text, offset.saturating_add(EXCERPT))];
        let end = offset + rest.find(['\n', '\r']).unwrap_or(rest.len());
        let clean = |part: &str| part.replace(|letter: char| letter.is_control(), " ");
        let indent = text[start..offset].chars().count();
        let room = text[offset..end].chars().count().max(1);
        Self {
            line: span.line(),
            column: span.column(),
            length: span.length().clamp(1, room),
            excerpt: clean(&text[start..end]),
            indent,
        }
    }
}

/// The last character boundary at or before `offset`.
fn floor(text: &str, offset: usize) -> usize {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    offset
}

impl Diagnostic {
    fn to_json(&self) -> Value {
        json!({
            "file": self.file,
            "line": self.place.as_ref().map(|place| place.line),
            "column": self.place.as_ref().map(|place| place.column),
            "length": self.place.as_ref().map(|place| place.length),
            "path": self.path,
            "message": self.message,
            "help": self.help,
        })
    }

    /// The fault with its source line, as compilers print it.
    fn render(&self, out: &mut impl fmt::Write) -> fmt::Result {
        writeln!(out, "error: {}", self.message)?;
        match &self.place {
            None => writeln!(out, " --> {}", self.file)?,
            Some(place) => {
                let line = place.line.to_string();
                let gap = " ".repeat(line.len());
                writeln!(out, "{gap}--> {}:{line}:{}", self.file, place.column)?;
                writeln!(out, "{gap} |")?;
                writeln!(out, "{line} | {}", place.excerpt.trim_end())?;
                let (indent, carets) = (" ".repeat(place.indent), "^".repeat(place.length));
                writeln!(out, "{gap} | {indent}{carets}")?;
            }
        }
        if !self.path.is_empty() {
            writeln!(out, "  in: {}", self.path)?;
        }
        if let Some(help) = &self.help {
            writeln!(out, "  help: {help}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(place) = &self.place {
            write!(f, ":{}:{}", place.line, place.column)?;
        }
        write!(f, ": {}", self.message)?;
        if !self.path.is_empty() {
            write!(f, " (in {})", self.path)?;
        }
        match &self.help {
            Some(help) => write!(f, "; {help}"),
            None => Ok(()),
        }
    }
}

/// All faults of all files, in file order; at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RulesError(pub Vec<Diagnostic>);

impl RulesError {
    /// Every fault with its source line.
    pub fn render(&self) -> String {
        let mut out = String::new();
        for fault in &self.0 {
            if fault.render(&mut out).is_ok() {
                out.push('\n');
            }
        }
        out.push_str(&match self.0.len() {
            1 => "1 fault\n".to_owned(),
            count => format!("{count} faults\n"),
        });
        out
    }

    /// A list with an object per fault.
    pub fn to_json(&self) -> Value {
        self.0.iter().map(Diagnostic::to_json).collect()
    }
}

/// One line per fault; of many, the first ones.
impl fmt::Display for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.0.iter().take(SHOWN).enumerate() {
            let end = if index == 0 { "" } else { "\n" };
            write!(f, "{end}{fault}")?;
        }
        match self.0.len().checked_sub(SHOWN) {
            None | Some(0) => Ok(()),
            Some(more) => write!(f, "\nand {more} more"),
        }
    }
}

impl std::error::Error for RulesError {}

/// Collects the faults of one file.
#[derive(Debug)]
pub(super) struct Faults<'s> {
    file: &'s SourceFile,
    found: Vec<Diagnostic>,
    path: Vec<String>,
}

impl<'s> Faults<'s> {
    pub(super) fn new(file: &'s SourceFile) -> Self {
        Self { file, found: Vec::new(), path: Vec::new() }
    }

    pub(super) fn enter(&mut self, step: String) {
        self.path.push(step);
    }

    pub(super) fn leave(&mut self) {
        self.path.pop();
    }

    pub(super) fn add(&mut self, span: Span, message: impl Into<String>) -> &mut Diagnostic {
        let at = self.found.len();
        self.found.push(Diagnostic {
            file: self.file.name.clone(),
            place: Some(Place::new(&self.file.text, span)),
            path: self.path.join(" > "),
            message: message.into(),
            help: None,
        });
        &mut self.found[at]
    }

    /// How many there are so far.
    pub(super) fn count(&self) -> usize {
        self.found.len()
    }

    pub(super) fn into_found(self) -> Vec<Diagnostic> {
        self.found
    }
}

impl Diagnostic {
    pub(super) fn help(&mut self, help: impl Into<String>) {
        self.help = Some(help.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{CompileOptions, compile};
    use crate::telemetry::RuleSeries;

    fn faults(text: &str) -> RulesError {
        let file = SourceFile { name: "r".into(), text: text.into() };
        compile(&[file], CompileOptions::default(), &RuleSeries::default()).unwrap_err()
    }

    #[test]
    fn the_fault_is_marked_in_its_line() {
        assert_eq!(
            faults("# é\r\ndomain: d\r\né: 1\r\n").render(),
            "error: unknown key `é` in the top of a rules file\n \
             --> r:3:1\n  |\n3 | é: 1\n  | ^\n  \
             help: the top of a rules file has `domain`, `descriptors`, `charge`, \
             `on_store_failure`, `consistency`\n\n1 fault\n"
        );
    }

    #[test]
    fn long_lines_are_cut_around_the_fault() {
        let rules: String = (0..5_000).map(|index| format!("{{kye: k{index}}}, ")).collect();
        let error = faults(&format!("{{domain: d, descriptors: [{rules}]}}"));
        assert_eq!(error.0.len(), 5_000);
        let place = error.0[4_000].place.as_ref().unwrap();
        assert_eq!((place.line, place.length, place.indent), (1, 3, EXCERPT));
        assert_eq!(place.excerpt.chars().count(), 2 * EXCERPT);
        assert_eq!(&place.excerpt[place.indent..][..9], "kye: k400");
    }

    #[test]
    fn many_faults_are_summed_up_in_one_message() {
        let text = faults(&format!("domain: d\ndescriptors: [{}]", "{}, ".repeat(50))).to_string();
        assert_eq!(text.lines().count(), SHOWN + 1);
        assert!(text.ends_with("\nand 30 more"), "{text}");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let text = faults("domain: d\n\"\\e[2J\\n\": 1\n").render();
        assert!(text.chars().all(|letter| letter == '\n' || !letter.is_control()), "{text:?}");
    }
}
