//! Which files need not be kept.

use aulos_engine::recorder::UnixTime;

use super::report::Rule;
use super::wish::Retention;

/// A complete file of a recorder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) end: UnixTime,
}

/// How many of `items`, which are sorted from the oldest on, are to be deleted, each with the rule
/// that wants it. The newest is kept whatever the rules say: it may be all that there is of today.
pub(super) fn doomed(items: &[Item], rules: &Retention, now: UnixTime, free: u64) -> Vec<Rule> {
    let total: u64 = items.iter().map(|item| item.bytes).sum();
    let (mut left, mut bytes, mut free) = (items.len() as u64, total, free);
    let mut why = Vec::new();
    for item in items.iter().take(items.len().saturating_sub(1)) {
        let age = now.as_nanos().saturating_sub(item.end.as_nanos());
        let rule = if rules.age.is_some_and(|most| age > most.as_nanos()) {
            Rule::Age
        } else if rules.count.is_some_and(|most| left > most) {
            Rule::Count
        } else if rules.bytes.is_some_and(|most| bytes > most) {
            Rule::Bytes
        } else if free < rules.keep_free {
            Rule::Free
        } else {
            break;
        };
        why.push(rule);
        left -= 1;
        bytes -= item.bytes;
        free = free.saturating_add(item.bytes);
    }
    why
}

#[cfg(test)]
mod tests {
    use aulos_core::Span;
    use proptest::prelude::*;

    use super::*;

    fn items(count: u64) -> Vec<Item> {
        let item = |index| Item {
            name: format!("{index}"),
            bytes: 10,
            end: UnixTime::from_nanos(i64::try_from(index).unwrap() * 1_000_000_000),
        };
        (0..count).map(item).collect()
    }

    #[test]
    fn each_rule_takes_the_oldest_and_the_newest_stays() {
        let now = UnixTime::from_nanos(100_000_000_000);
        let none = Retention::default();
        let doomed = |rules: Retention, free| doomed(&items(10), &rules, now, free);
        assert_eq!(doomed(none, 0), []);
        assert_eq!(doomed(Retention { count: Some(7), ..none }, 0), [Rule::Count; 3]);
        assert_eq!(doomed(Retention { count: Some(0), ..none }, 0), [Rule::Count; 9]);
        assert_eq!(doomed(Retention { bytes: Some(55), ..none }, 0), [Rule::Bytes; 5]);
        let age = Some(Span::from_secs(96));
        assert_eq!(doomed(Retention { age, ..none }, 0), [Rule::Age; 4]);
        assert_eq!(doomed(Retention { keep_free: 25, ..none }, 5), [Rule::Free; 2]);
        let all = Retention { age, count: Some(5), bytes: Some(40), keep_free: 70 };
        let (age, count, bytes, free) = (Rule::Age, Rule::Count, Rule::Bytes, Rule::Free);
        assert_eq!(doomed(all, 0), [age, age, age, age, count, bytes, free]);
    }

    proptest! {
        #[test]
        fn what_is_left_is_within_every_rule(
            count in 0..20_u64, most in 1..20_u64, bytes in 10..300_u64, free in 0..100_u64,
            keep_free in 0..100_u64,
        ) {
            let rules = Retention { age: None, count: Some(most), bytes: Some(bytes), keep_free };
            let items = items(count);
            let gone = doomed(&items, &rules, UnixTime::default(), free).len();
            let left = (items.len() - gone) as u64;
            prop_assert!(left <= 1 || left <= most);
            prop_assert!(left <= 1 || left * 10 <= bytes);
            prop_assert!(left <= 1 || free + 10 * gone as u64 >= keep_free);
        }
    }
}
