//! Where leases may be, and which level says so.

use super::*;

#[test]
fn leases_are_for_fixed_windows_with_a_length() {
    const WHY: &str =
        "cannot be `leased`: hits of a lease may be spent later than they were counted";
    check_limit("{unit: day, consistency: leased}", &[]);
    check_limit("{unit: day, consistency: loose}", &["1:26: `consistency` can not be `loose`"]);
    check_limit(
        "{unit: day, consistency: leased, algorithm: gcra}",
        &[&format!("1:13: `gcra` {WHY}")],
    );
    check_limit(
        "{unit: day, calendar: true, consistency: leased}",
        &[&format!("1:29: a calendar window {WHY}")],
    );
    let inherited = |limit| format!("{{key: k, consistency: leased, rate_limit: {limit}}}");
    check_rule(&inherited("{unit: day, algorithm: gcra}"), &[&format!("1:55: `gcra` {WHY}")]);
    check_rule(&inherited("{unit: day, algorithm: gcra, consistency: strict}"), &[]);
}

#[test]
fn consistency_is_that_of_the_nearest_level() {
    let rules = compile_one(
        "{domain: d, consistency: leased, descriptors: [
            {key: a, rate_limit: {unit: day}},
            {key: b, consistency: strict, rate_limits: [
                {unit: day}, {unit: hour, consistency: leased}]}]}",
    )
    .unwrap();
    let found: Vec<_> =
        rules.rules().flat_map(|rule| &rule.limits).map(|limit| limit.consistency).collect();
    assert_eq!(found, [Consistency::Leased, Consistency::Strict, Consistency::Leased]);
    assert_eq!(rules.dump().matches(", consistency: leased").count(), 2);
}
