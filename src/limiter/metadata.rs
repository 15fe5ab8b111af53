//! `dynamic_metadata`: what was asked, which rule answered, and the rules' own metadata.

use super::plan::{Plan, Planned, Source};
use super::report::Outcomes;
use crate::model::{Code, Descriptor, LimitOverride, Metadata, MetadataValue, Request};

pub(super) fn write(request: &Request<'_>, plan: &Plan<'_>, outcomes: &[Outcomes]) -> Metadata {
    let mut fields = vec![("domain".to_owned(), text(request.domain))];
    let descriptors = request
        .descriptors
        .iter()
        .zip(&plan.descriptors)
        .zip(outcomes)
        .map(|((asked, planned), outcome)| descriptor(asked, planned, outcome))
        .collect();
    fields.push(("descriptors".to_owned(), MetadataValue::List(descriptors)));
    if request.hits_addend != 0 {
        fields.push(("hitsAddend".to_owned(), MetadataValue::Number(request.hits_addend.into())));
    }
    let mut merged = Metadata::default();
    for (planned, outcome) in plan.descriptors.iter().zip(outcomes) {
        let passed = outcome.status.code == Code::Ok;
        if let (Some(metadata), true) = (own_metadata(planned), passed) {
            merged.merge(metadata);
        }
    }
    if !merged.0.is_empty() {
        fields.push(("metadata".to_owned(), MetadataValue::Map(merged)));
    }
    Metadata(fields)
}

fn descriptor(asked: &Descriptor<'_>, planned: &Planned<'_>, outcome: &Outcomes) -> MetadataValue {
    let entries = asked.entries.iter().map(|entry| {
        let key = String::from_utf8_lossy(entry.key);
        text(&format!("{key}={}", String::from_utf8_lossy(entry.value)))
    });
    let mut fields = vec![("entries".to_owned(), MetadataValue::List(entries.collect()))];
    if let Some(LimitOverride { requests_per_unit, unit, .. }) = asked.limit {
        let unit = unit.name().to_uppercase();
        let limit = format!("requests_per_unit:{requests_per_unit} unit:{unit}");
        fields.push(("limit".to_owned(), text(&limit)));
    }
    if let Some(hits) = asked.hits_addend {
        // A double, as in JSON; counts that large are clamped anyway.
        #[expect(clippy::cast_precision_loss, reason = "protobuf numbers are doubles")]
        fields.push(("hitsAddend".to_owned(), MetadataValue::Number(hits as f64)));
    }
    if let Source::Rule { rule, .. } | Source::Unlimited(rule, _) = planned.source {
        fields.push(("rule".to_owned(), text(&rule.path)));
    }
    if outcome.over {
        // Also where the status says OK because the rule is in shadow mode.
        fields.push(("overLimit".to_owned(), MetadataValue::Bool(true)));
    }
    MetadataValue::Map(Metadata(fields))
}

fn own_metadata<'r>(planned: &Planned<'r>) -> Option<&'r Metadata> {
    match planned.source {
        Source::Rule { rule, .. } | Source::Unlimited(rule, _) => rule.metadata.as_ref(),
        Source::NoLimit | Source::Override(..) => None,
    }
}

fn text(text: &str) -> MetadataValue {
    MetadataValue::String(text.to_owned())
}
