use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn the_latest_published_value_is_read(ops in prop::collection::vec(any::<bool>(), 0..60)) {
        let (mut publisher, mut reader) = latest(0);
        let (mut newest, mut seen) = (0, 0);
        for publish in ops {
            if publish {
                newest += 1;
                publisher.publish(newest);
            } else {
                let new = reader.read_new().copied();
                prop_assert_eq!(new, (newest != seen).then_some(newest));
                seen = newest;
                prop_assert_eq!(*reader.read(), newest);
            }
        }
    }
}

#[test]
fn a_reader_alone_keeps_the_last_value() {
    let (mut publisher, mut reader) = latest(String::from("a"));
    publisher.update(|value| value.replace_range(.., "b"));
    drop(publisher);
    assert_eq!(reader.read(), "b");
    assert_eq!(reader.read_new(), None);
}

#[test]
fn values_are_whole_and_never_go_back() {
    const COUNT: u64 = 400_000;
    let (mut publisher, mut reader) = latest([0_u64; 9]);
    std::thread::scope(|scope| {
        scope.spawn(move || (1..=COUNT).for_each(|i| publisher.publish([i; 9])));
        let mut last = 0;
        while last < COUNT {
            let value = *reader.read();
            assert!(value.iter().all(|&part| part == value[0]), "torn: {value:?}");
            assert!(value[0] >= last);
            last = value[0];
            std::thread::yield_now();
        }
    });
}
