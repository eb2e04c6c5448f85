//! Selects the files that retention deletes.

use aulos_engine::recorder::UnixTime;

use super::config::RetentionRules;
use super::report::RetentionReason;

/// A complete file of a recorder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RetainedFile {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) end: UnixTime,
}

/// The reasons for which the first of `files`, which are sorted from the oldest on, are to be
/// deleted. The newest is kept in any case: it may be the only one of the day.
pub(super) fn files_to_delete(
    files: &[RetainedFile],
    rules: &RetentionRules,
    now: UnixTime,
    free: u64,
) -> Vec<RetentionReason> {
    let total: u64 = files.iter().map(|file| file.bytes).sum();
    let (mut left, mut bytes, mut free) = (files.len() as u64, total, free);
    let mut reasons = Vec::new();
    for file in files.iter().take(files.len().saturating_sub(1)) {
        let age = now.as_nanos().saturating_sub(file.end.as_nanos());
        let rule = if rules.max_age.is_some_and(|max| age > max.as_nanos()) {
            RetentionReason::Age
        } else if rules.max_files.is_some_and(|max| left > max) {
            RetentionReason::Count
        } else if rules.max_bytes.is_some_and(|max| bytes > max) {
            RetentionReason::Bytes
        } else if free < rules.keep_free {
            RetentionReason::FreeSpace
        } else {
            break;
        };
        reasons.push(rule);
        left -= 1;
        bytes -= file.bytes;
        free = free.saturating_add(file.bytes);
    }
    reasons
}

#[cfg(test)]
mod tests {
    use aulos_core::Span;
    use proptest::prelude::*;

    use super::*;

    fn files(count: u64) -> Vec<RetainedFile> {
        let file = |index| RetainedFile {
            name: format!("{index}"),
            bytes: 10,
            end: UnixTime::from_nanos(i64::try_from(index).unwrap() * 1_000_000_000),
        };
        (0..count).map(file).collect()
    }

    #[test]
    fn each_rule_deletes_the_oldest_files_and_keeps_the_newest() {
        let now = UnixTime::from_nanos(100_000_000_000);
        let none = RetentionRules::default();
        let files_to_delete =
            |rules: RetentionRules, free| files_to_delete(&files(10), &rules, now, free);
        assert_eq!(files_to_delete(none, 0), []);
        assert_eq!(
            files_to_delete(RetentionRules { max_files: Some(7), ..none }, 0),
            [RetentionReason::Count; 3]
        );
        assert_eq!(
            files_to_delete(RetentionRules { max_files: Some(0), ..none }, 0),
            [RetentionReason::Count; 9]
        );
        assert_eq!(
            files_to_delete(RetentionRules { max_bytes: Some(55), ..none }, 0),
            [RetentionReason::Bytes; 5]
        );
        let age = Some(Span::from_secs(96));
        assert_eq!(
            files_to_delete(RetentionRules { max_age: age, ..none }, 0),
            [RetentionReason::Age; 4]
        );
        assert_eq!(
            files_to_delete(RetentionRules { keep_free: 25, ..none }, 5),
            [RetentionReason::FreeSpace; 2]
        );
        let all =
            RetentionRules { max_age: age, max_files: Some(5), max_bytes: Some(40), keep_free: 70 };
        let (age, count, bytes, free) = (
            RetentionReason::Age,
            RetentionReason::Count,
            RetentionReason::Bytes,
            RetentionReason::FreeSpace,
        );
        assert_eq!(files_to_delete(all, 0), [age, age, age, age, count, bytes, free]);
    }

    proptest! {
        #[test]
        fn the_remaining_files_satisfy_every_rule(
            count in 0..20_u64, max in 1..20_u64, bytes in 10..300_u64, free in 0..100_u64,
            keep_free in 0..100_u64,
        ) {
            let rules = RetentionRules { max_age: None, max_files: Some(max), max_bytes: Some(bytes), keep_free };
            let files = files(count);
            let deleted = files_to_delete(&files, &rules, UnixTime::default(), free).len();
            let left = (files.len() - deleted) as u64;
            prop_assert!(left <= 1 || left <= max);
            prop_assert!(left <= 1 || left * 10 <= bytes);
            prop_assert!(left <= 1 || free + 10 * deleted as u64 >= keep_free);
        }
    }
}
