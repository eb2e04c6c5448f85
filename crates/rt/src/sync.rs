//! The one door to atomics, so that a model checker can stand behind it.

pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicUsize, Ordering,
};
