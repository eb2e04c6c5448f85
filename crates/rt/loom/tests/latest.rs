//! Every interleaving of a publisher and a reader.

use aulos_rt_loom::latest::latest;
use loom::thread;

/// Loom's cells report a value that is read while it is written.
#[test]
fn values_are_whole_and_never_go_back() {
    loom::model(|| {
        let (mut publisher, mut reader) = latest(0);
        let thread = thread::spawn(move || {
            publisher.publish(1);
            publisher.publish(2);
            publisher.publish(3);
        });
        let one = *reader.read();
        let two = *reader.read();
        assert!(one <= two);
        thread.join().unwrap();
        assert_eq!(*reader.read(), 3);
    });
}
