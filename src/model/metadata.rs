//! Free-form values of a rule's `metadata` block, in the shape of `google.protobuf.Struct`.

/// A map from names to values, in file order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Metadata(pub Vec<(String, MetadataValue)>);

#[derive(Debug, Clone, PartialEq)]
pub enum MetadataValue {
    Null,
    Bool(bool),
    Number(f64),
    String(String),
    List(Vec<MetadataValue>),
    Map(Metadata),
}

impl Metadata {
    /// Adds what `other` has and `self` lacks; maps present in both are merged in the same way,
    /// anything else keeps the value of `self`.
    pub fn merge(&mut self, other: &Self) {
        for (name, value) in &other.0 {
            match self.0.iter_mut().find(|(own, _)| own == name) {
                None => self.0.push((name.clone(), value.clone())),
                Some((_, MetadataValue::Map(own))) => {
                    if let MetadataValue::Map(more) = value {
                        own.merge(more);
                    }
                }
                Some(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::MetadataValue::{Map, Number, String as Text};
    use super::*;

    fn map(pairs: &[(&str, MetadataValue)]) -> Metadata {
        Metadata(pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect())
    }

    #[test]
    fn merging_keeps_the_first_value_and_joins_maps() {
        let mut first =
            map(&[("who", Text("first".into())), ("nest", Map(map(&[("a", Number(1.0))])))]);
        first.merge(&map(&[
            ("who", Text("second".into())),
            ("nest", Map(map(&[("a", Number(9.0)), ("b", Number(2.0))]))),
            ("extra", MetadataValue::Bool(true)),
        ]));
        let want = map(&[
            ("who", Text("first".into())),
            ("nest", Map(map(&[("a", Number(1.0)), ("b", Number(2.0))]))),
            ("extra", MetadataValue::Bool(true)),
        ]);
        assert_eq!(first, want);
    }
}
