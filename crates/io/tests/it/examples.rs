//! Each example runs to its end.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "../../examples/app_source.rs"]
mod app_source;
#[path = "../../examples/proxy.rs"]
mod proxy;
#[path = "../../examples/queue.rs"]
mod queue;
#[path = "../../examples/tone.rs"]
mod tone;

#[test]
fn a_graph_outputs_a_tone() {
    tone::main().unwrap();
}

#[test]
fn a_program_pushes_its_samples_into_a_graph() {
    app_source::main().unwrap();
}

#[test]
fn a_queue_loses_the_oldest_and_counts() {
    queue::main().unwrap();
}

#[test]
fn a_proxy_distributes_one_source_to_many_readers() {
    proxy::main().unwrap();
}
