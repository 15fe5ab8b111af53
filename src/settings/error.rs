//! What is wrong with the settings, all of it at once.

use std::fmt;

/// Every fault that was found, in the order of the settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct SettingsError {
    pub faults: Vec<Fault>,
}

/// One fault: which setting, where it was written, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Key of the setting, or the name that is not one.
    pub setting: String,
    /// File and key, environment variable or flag.
    pub origin: String,
    /// What was given and what is expected; never holds a secret.
    pub problem: String,
}

impl Fault {
    pub(super) fn new(
        setting: impl Into<String>,
        origin: impl Into<String>,
        problem: impl Into<String>,
    ) -> Self {
        Self { setting: setting.into(), origin: origin.into(), problem: problem.into() }
    }

    pub(super) fn unexpected(setting: &str, origin: &str, given: &str, expected: &str) -> Self {
        let given = if given.is_empty() { "it is set but empty".into() } else { quote(given) };
        Self::new(setting, origin, format!("{given}, expected {expected}"))
    }
}

/// What was given, short enough for one line.
fn quote(given: &str) -> String {
    const LONGEST: usize = 80;
    match given.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{:?}… was given", &given[..end]),
        None => format!("{given:?} was given"),
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (from {}): {}", self.setting, self.origin, self.problem)
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.faults.as_slice() {
            [fault] => write!(f, "a setting is wrong: {fault}"),
            faults => {
                write!(f, "{} settings are wrong:", faults.len())?;
                faults.iter().try_for_each(|fault| write!(f, "\n  {fault}"))
            }
        }
    }
}
