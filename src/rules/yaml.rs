//! A YAML document as a tree in which every key and value knows its place.
//!
//! Scalars keep their source text: `1.10` stays `1.10`, and whether `on` is a word or a bool is
//! for the field to say. Anchors, aliases and merge keys (`<<`) are resolved here, within bounds:
//! a short file can not grow into a large tree.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use granit_parser::{ErrorKind, Event, Options, Parser, ScalarStyle, StructureStyle};

use super::diagnostic::Faults;

/// Deepest nesting of lists and maps; the reader and the compiler recurse this far at most.
const MAX_DEPTH: usize = 200;
/// Most nodes that anchors and aliases may copy in one file.
const MAX_COPIED: usize = 200_000;
/// From this many entries on, duplicate keys are found by hashing.
const LARGE_MAP: usize = 16;

/// A stretch of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Span {
    offset: u32,
    line: u32,
    column: u32,
    length: u32,
}

impl Span {
    fn new(span: granit_parser::Span) -> Self {
        let (start, end) = (span.start, span.end);
        let narrow = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Self {
            offset: narrow(start.byte_offset().unwrap_or(start.index())),
            line: narrow(start.line()),
            column: narrow(start.col() + 1),
            length: match start.line() == end.line() {
                true => narrow(end.index().saturating_sub(start.index()).max(1)),
                false => 1,
            },
        }
    }

    fn at(marker: &granit_parser::Marker) -> Self {
        Self::new(granit_parser::Span::empty(*marker))
    }

    /// The first character of a file, where the whole file is at fault.
    pub(super) fn start() -> Self {
        Self { offset: 0, line: 1, column: 1, length: 1 }
    }

    /// In bytes.
    pub(super) fn offset(self) -> usize {
        self.offset as usize
    }

    pub(super) fn line(self) -> usize {
        self.line as usize
    }

    pub(super) fn column(self) -> usize {
        self.column as usize
    }

    pub(super) fn length(self) -> usize {
        self.length as usize
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Yaml<'t> {
    pub(super) span: Span,
    pub(super) value: Value<'t>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value<'t> {
    Scalar {
        text: Cow<'t, str>,
        /// Neither quoted nor a block nor tagged as text, so it may be more than text.
        plain: bool,
    },
    List(Vec<Yaml<'t>>),
    Map(Vec<(Yaml<'t>, Yaml<'t>)>),
}

impl<'t> Yaml<'t> {
    pub(super) fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar { text, plain: true }
            if matches!(text.as_ref(), "" | "~" | "null" | "Null" | "NULL"))
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar { text, .. } => Some(text),
            Value::List(_) | Value::Map(_) => None,
        }
    }

    /// The value of a key, if the node is a map that has it.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        let Value::Map(entries) = &self.value else { return None };
        entries.iter().find(|(key, _)| key.as_text() == Some(name)).map(|(_, value)| value)
    }

    /// Nodes in the tree, and how deep it is.
    fn size(&self) -> (usize, usize) {
        let join = |(nodes, depth): (usize, usize), (more, deep): (usize, usize)| {
            (nodes + more, depth.max(deep + 1))
        };
        match &self.value {
            Value::Scalar { .. } => (1, 0),
            Value::List(items) => items.iter().map(Self::size).fold((1, 1), join),
            Value::Map(entries) => entries
                .iter()
                .flat_map(|(key, value)| [key.size(), value.size()])
                .fold((1, 1), join),
        }
    }

    /// What the node is, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match &self.value {
            _ if self.is_null() => "nothing",
            Value::Scalar { plain: true, .. } => "a plain value",
            Value::Scalar { plain: false, .. } => "a quoted text",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }
}

/// A list or map whose end has not been read.
struct Open<'t> {
    span: Span,
    anchor: usize,
    value: Value<'t>,
    /// The key whose value comes next; maps only.
    key: Option<Yaml<'t>>,
}

struct Reader<'t, 'f, 's> {
    open: Vec<Open<'t>>,
    root: Option<Yaml<'t>>,
    anchors: HashMap<usize, Yaml<'t>>,
    copied: usize,
    faults: &'f mut Faults<'s>,
}

/// The one document of a file; `None` for a file without content, and for one that is not YAML,
/// which is a fault.
pub(super) fn read<'t>(text: &'t str, faults: &mut Faults<'_>) -> Option<Yaml<'t>> {
    let mut options = Options::default();
    options.set_emit_comments(false);
    let mut reader =
        Reader { open: Vec::new(), root: None, anchors: HashMap::new(), copied: 0, faults };
    let mut documents = 0;
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = match event {
            Ok(event) => event,
            Err(error) => {
                reader.syntax_error(text, &error);
                return None;
            }
        };
        if let Event::DocumentStart(..) = event {
            documents += 1;
            if documents > 1 {
                let message = "a second document in one file";
                reader
                    .faults
                    .add(Span::new(span), message)
                    .help("only one document per file is read: move this one to a file of its own");
                return None;
            }
        }
        reader.event(text, event, Span::new(span))?;
    }
    reader.root
}

impl<'t> Reader<'t, '_, '_> {
    /// `None` ends the file.
    fn event(&mut self, text: &str, event: Event<'t>, span: Span) -> Option<()> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let is_text =
                    tag.is_some_and(|tag| tag.is_yaml_core_schema() && tag.suffix() == "str");
                let plain = style == ScalarStyle::Plain && !is_text;
                self.add(Yaml { span, value: Value::Scalar { text, plain } }, anchor)
            }
            Event::SequenceStart(_, anchor, _) => self.open(span, anchor, Value::List(Vec::new())),
            Event::MappingStart(style, anchor, _) => {
                if self.open.is_empty() && style == StructureStyle::Block {
                    self.refuse_tab(text, span)?;
                }
                self.open(span, anchor, Value::Map(Vec::new()))
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Open { span, anchor, value, .. } = self.open.pop()?;
                let value = match value {
                    Value::Map(entries) => Value::Map(self.finish_map(entries)),
                    other => other,
                };
                self.add(Yaml { span, value }, anchor)
            }
            Event::Alias(anchor) => self.alias(span, anchor),
            _ => Some(()),
        }
    }

    fn open(&mut self, span: Span, anchor: usize, value: Value<'t>) -> Option<()> {
        if self.open.len() >= MAX_DEPTH {
            self.too_deep(span);
            return None;
        }
        self.open.push(Open { span, anchor, value, key: None });
        Some(())
    }

    fn add(&mut self, node: Yaml<'t>, anchor: usize) -> Option<()> {
        if anchor != 0 {
            self.count(&node, node.span)?;
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(Open { value: Value::List(items), .. }) => items.push(node),
            Some(Open { value: Value::Map(entries), key, .. }) => match key.take() {
                None => *key = Some(node),
                Some(key) => entries.push((key, node)),
            },
            Some(_) => {}
        }
        Some(())
    }

    fn alias(&mut self, span: Span, anchor: usize) -> Option<()> {
        let Some(node) = self.anchors.get(&anchor) else {
            self.faults.add(span, "an alias inside the node that it repeats");
            return None;
        };
        let node = node.clone();
        self.count(&node, span)?;
        self.add(node, 0)
    }

    /// Books a copy of `node` against the bounds.
    fn count(&mut self, node: &Yaml<'t>, span: Span) -> Option<()> {
        let (nodes, depth) = node.size();
        self.copied += nodes;
        if self.copied > MAX_COPIED {
            let message = format!("anchors and aliases repeat more than {MAX_COPIED} values");
            self.faults.add(span, message).help("write the rules out");
            return None;
        }
        if self.open.len() + depth > MAX_DEPTH {
            self.too_deep(span);
            return None;
        }
        Some(())
    }

    /// Refuses duplicate keys and resolves `<<`.
    fn finish_map(&mut self, entries: Vec<(Yaml<'t>, Yaml<'t>)>) -> Vec<(Yaml<'t>, Yaml<'t>)> {
        let mut seen = HashSet::new();
        let mut merges = Vec::new();
        let mut out: Vec<(Yaml<'t>, Yaml<'t>)> = Vec::with_capacity(entries.len());
        let large = entries.len() >= LARGE_MAP;
        for (key, value) in entries {
            let Some(name) = key.as_text() else {
                out.push((key, value));
                continue;
            };
            if name == "<<" && matches!(key.value, Value::Scalar { plain: true, .. }) {
                merges.push(value);
                continue;
            }
            let known = match large {
                true => !seen.insert(name.to_owned()),
                false => out.iter().any(|(other, _)| other.as_text() == Some(name)),
            };
            if known {
                let message = format!("key `{}` is given twice in one map", shorten(name));
                self.faults.add(key.span, message).help("keep one of them");
                continue;
            }
            out.push((key, value));
        }
        for merge in merges {
            self.merge(&mut out, merge);
        }
        out
    }

    fn merge(&mut self, out: &mut Vec<(Yaml<'t>, Yaml<'t>)>, from: Yaml<'t>) {
        match from.value {
            Value::Map(entries) => {
                for (key, value) in entries {
                    let name = key.as_text();
                    if name.is_none() || out.iter().all(|(other, _)| other.as_text() != name) {
                        out.push((key, value));
                    }
                }
            }
            Value::List(items) => items.into_iter().for_each(|item| self.merge(out, item)),
            Value::Scalar { .. } => {
                self.faults.add(from.span, "`<<` needs a map or a list of maps to merge");
            }
        }
    }

    fn too_deep(&mut self, span: Span) {
        self.faults.add(span, format!("lists and maps are nested more than {MAX_DEPTH} deep"));
    }

    fn refuse_tab(&mut self, text: &str, span: Span) -> Option<()> {
        let before = span.column() - 1;
        let start = span.offset().saturating_sub(before);
        match text.get(start..span.offset()).and_then(|indent| indent.find('\t')) {
            Some(at) => {
                self.tab(start + at, span.line(), at + 1);
                None
            }
            None => Some(()),
        }
    }

    fn tab(&mut self, offset: usize, line: usize, column: usize) {
        let narrow = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let (offset, line, column) = (narrow(offset), narrow(line), narrow(column));
        let span = Span { offset, line, column, length: 1 };
        self.faults.add(span, "a tab in the indentation").help("indent with spaces");
    }

    fn syntax_error(&mut self, text: &str, error: &granit_parser::ScanError) {
        let marker = error.marker();
        let first = marker.line().saturating_sub(1);
        let mut offset: usize = text.split_inclusive('\n').take(first).map(str::len).sum();
        for (index, line) in text.split_inclusive('\n').enumerate().skip(first).take(2) {
            let indent = &line[..line.len() - line.trim_start().len()];
            if let Some(at) = indent.find('\t') {
                self.tab(offset + at, index + 1, at + 1);
                return;
            }
            offset += line.len();
        }
        if matches!(error.kind(), ErrorKind::RecursionLimitExceeded) {
            self.too_deep(Span::at(marker));
            return;
        }
        self.faults.add(Span::at(marker), format!("not valid YAML: {}", error.info())).help(
            "the rest of the file is not checked; quote values that hold `: `, `#`, `*`, `&` or `@` in \
             a place where YAML gives them a meaning",
        );
    }
}

/// A text as it may stand in a message: cut, and without control characters.
pub(super) fn shorten(text: &str) -> Cow<'_, str> {
    const LONGEST: usize = 60;
    if text.contains(char::is_control) {
        let clean: String = text.chars().filter(|letter| !letter.is_control()).collect();
        return Cow::Owned(shorten(&clean).into_owned());
    }
    match text.char_indices().nth(LONGEST) {
        None => Cow::Borrowed(text),
        Some((at, _)) => Cow::Owned(format!("{}…", &text[..at])),
    }
}
