//! The layers below the flags' parsing: what was written where, not yet valid.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use config::{Config, File, FileFormat, Map, Source, Value, ValueKind};

use super::error::Fault;
use super::table::{self, SETTINGS, Shape, Spec};

/// Values by key, each with its origin.
#[derive(Debug, Clone, Default)]
pub(super) struct Layer(Vec<(&'static str, Value)>);

impl Layer {
    pub(super) fn set(&mut self, key: &'static str, origin: &str, value: impl Into<ValueKind>) {
        self.0.push((key, Value::new(Some(&origin.to_owned()), value)));
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.0.iter().any(|(own, _)| *own == key)
    }
}

impl Source for Layer {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, config::ConfigError> {
        Ok(self.0.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect())
    }
}

/// The strongest value of each setting; later layers are stronger.
pub(super) fn merge(
    layers: impl IntoIterator<Item = Layer>,
) -> Result<BTreeMap<String, Value>, config::ConfigError> {
    let mut builder = Config::builder();
    for layer in layers {
        builder = builder.add_source(layer);
    }
    let mut leaves = BTreeMap::new();
    flatten("", builder.build()?.collect()?, &mut leaves);
    Ok(leaves)
}

pub(super) fn defaults() -> Layer {
    let mut layer = Layer::default();
    for spec in SETTINGS {
        layer.set(spec.key, "default", spec.default);
    }
    layer
}

/// Reads a settings file, TOML or YAML by its extension.
pub(super) fn file(path: &Path, faults: &mut Vec<Fault>) -> Layer {
    let mut layer = Layer::default();
    let name = path.display().to_string();
    let format = match path.extension().and_then(|extension| extension.to_str()) {
        Some("toml") => FileFormat::Toml,
        Some("yaml" | "yml") => FileFormat::Yaml,
        _ => {
            let problem = "the file's name must end in .toml, .yaml or .yml";
            faults.push(Fault::new("settings file", name, problem));
            return layer;
        }
    };
    let read = std::fs::read_to_string(path).map_err(|error| error.to_string()).and_then(|text| {
        let parsed = Config::builder().add_source(File::from_str(&text, format)).build();
        parsed.and_then(|parsed| parsed.collect()).map_err(|error| error.to_string())
    });
    let root = match read {
        Ok(root) => root,
        Err(problem) => {
            faults.push(Fault::new(
                "settings file",
                name,
                problem.trim_end().replace('\n', "\n    "),
            ));
            return layer;
        }
    };
    let mut leaves = BTreeMap::new();
    flatten("", root, &mut leaves);
    for (key, value) in leaves {
        let origin = format!("{name}:{key}");
        match table::find(&key) {
            Some(spec) => layer.set(spec.key, &origin, value.kind),
            None => faults.push(Fault::new(&key, origin, unknown_key(&key, &value.kind))),
        }
    }
    layer
}

fn flatten(prefix: &str, table: Map<String, Value>, leaves: &mut BTreeMap<String, Value>) {
    for (name, value) in table {
        let key = if prefix.is_empty() { name } else { format!("{prefix}.{name}") };
        match value.kind {
            ValueKind::Table(inner) => flatten(&key, inner, leaves),
            // A section without settings.
            ValueKind::Nil if is_section(&key) => {}
            _ => {
                leaves.insert(key, value);
            }
        }
    }
}

fn is_section(key: &str) -> bool {
    SETTINGS.iter().any(|spec| spec.key.strip_prefix(key).is_some_and(|rest| rest.starts_with('.')))
}

fn unknown_key(key: &str, kind: &ValueKind) -> String {
    if is_section(key) {
        return format!("is a section, not a setting; {kind} was given for it");
    }
    let inside = SETTINGS.iter().find(|spec| spec.key.ends_with(&format!(".{key}")));
    match inside
        .map(|spec| spec.key.to_owned())
        .or_else(|| nearest(key, |spec| spec.key.to_owned()))
    {
        Some(known) => format!("there is no such setting; did you mean {known}?"),
        None => "there is no such setting; tollgate serve --print-settings lists all".to_owned(),
    }
}

/// The known name that is most like what was written, if one is.
fn nearest(written: &str, name: impl Fn(&'static Spec) -> String) -> Option<String> {
    let (distance, known) = SETTINGS
        .iter()
        .map(name)
        .map(|known| (strsim::damerau_levenshtein(written, &known), known))
        .min()?;
    // Half of a short name is another name.
    (distance <= (written.len() / 3).min(3)).then_some(known)
}

/// Reads the `TOLLGATE_` variables and takes them out of `env`, so that the reference's remain.
pub(super) fn variables(
    env: &mut HashMap<String, String>,
    ignored: &mut Vec<String>,
    faults: &mut Vec<Fault>,
) -> Layer {
    let mut layer = Layer::default();
    // The short name first: the full one is stronger.
    for (variable, key) in std::iter::once(("TOLLGATE_STORE".to_owned(), "store.url"))
        .chain(SETTINGS.iter().map(|spec| (spec.variable(), spec.key)))
    {
        if let Some(value) = env.remove(&variable) {
            layer.set(key, &variable_origin(&variable), value);
        }
    }
    let mut unknown: Vec<_> = env
        .iter()
        .filter(|(name, value)| name.starts_with("TOLLGATE_") && !is_service_link(name, value))
        .map(|(name, _)| name.clone())
        .collect();
    unknown.sort();
    for name in unknown {
        match nearest(&name["TOLLGATE_".len()..], |spec| spec.variable().split_off(9)) {
            Some(known) => faults.push(Fault::new(
                &name,
                "the environment",
                format!("there is no such setting; did you mean TOLLGATE_{known}?"),
            )),
            None => ignored.push(name),
        }
    }
    layer
}

pub(super) fn variable_origin(names: &str) -> String {
    format!("${names}")
}

/// Whether Kubernetes made the variable for a service whose name starts with `tollgate`.
fn is_service_link(name: &str, value: &str) -> bool {
    let is_url = value.starts_with("tcp://") || value.starts_with("udp://");
    name.ends_with("_SERVICE_HOST")
        || name.ends_with("_SERVICE_PORT")
        || name.contains("_SERVICE_PORT_")
        || (name.ends_with("_PORT") && is_url)
        || name
            .split_once("_PORT_")
            .is_some_and(|(_, rest)| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// What was written for a setting, as text, or as the items of a list.
pub(super) fn written(shape: Shape, kind: &ValueKind) -> Result<Vec<String>, &'static str> {
    match (shape, kind) {
        (Shape::List, ValueKind::Array(items)) => items
            .iter()
            .map(|item| match &item.kind {
                ValueKind::String(text) => Ok(text.clone()),
                _ => Err("a list of texts"),
            })
            .collect(),
        (Shape::List, ValueKind::String(text)) => {
            Ok(text.split(',').filter(|item| !item.is_empty()).map(str::to_owned).collect())
        }
        (_, ValueKind::String(text)) => Ok(vec![text.clone()]),
        (Shape::Bool, ValueKind::Boolean(_)) => Ok(vec![kind.to_string()]),
        (Shape::Number, ValueKind::Float(_)) => Ok(vec![kind.to_string()]),
        // A plain number may stand for a size; what needs a unit refuses it.
        (
            Shape::Number | Shape::Text,
            ValueKind::I64(_) | ValueKind::U64(_) | ValueKind::I128(_) | ValueKind::U128(_),
        ) => Ok(vec![kind.to_string()]),
        (Shape::List, _) => Err("a list of texts"),
        (Shape::Bool, _) => Err("true or false"),
        (Shape::Number, _) => Err("a number"),
        (Shape::Text | Shape::Secret, _) => Err("text, in quotes if it looks like something else"),
    }
}
