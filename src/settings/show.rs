//! How settings are shown, with where each came from.

use std::fmt;

/// One setting as it is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    pub key: &'static str,
    /// As it was written; secrets hidden.
    pub value: String,
    /// `default`, a file and key, variables or a flag.
    pub origin: String,
}

/// All settings, in sections and columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shows(pub(super) Vec<Shown>);

impl fmt::Display for Shows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |text: fn(&Shown) -> &str, most: usize| {
            self.0.iter().map(|shown| text(shown).chars().count()).max().unwrap_or(0).min(most)
        };
        let keys = width(|shown| shown.key, usize::MAX);
        // One long value does not push all origins off the screen.
        let values = width(|shown| &shown.value, 40);
        let mut section = None;
        for shown in &self.0 {
            let own = shown.key.split('.').next();
            if section.is_some() && own != section {
                writeln!(f)?;
            }
            section = own;
            writeln!(f, "{:keys$}  {:values$}  {}", shown.key, shown.value, shown.origin)?;
        }
        Ok(())
    }
}
