//! The command line of aulos: one module for each subcommand.

#![forbid(unsafe_code)]

mod cli;

use std::process::ExitCode;

use aulos_rt::scratch::ScratchAllocator;

/// Opus is encoded and decoded on real-time threads.
#[global_allocator]
static ALLOCATOR: ScratchAllocator = ScratchAllocator::new();

fn main() -> ExitCode {
    cli::main().into()
}
