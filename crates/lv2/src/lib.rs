//! The live normalizer and the loudness meter of `aulos-dsp` as LV2 plug-ins.
//!
//! ```text
//!  table -> turtle -> bundle/*.ttl          what hosts read before they load the library
//!    |
//!  ffi -> normalizer, meter -> aulos-dsp    ports to interleaved blocks of bounded size, and back
//! ```
//!
//! One table ([`table`]) has all plug-ins and ports: the files of the bundle are generated from it,
//! and a test compares them. The declarations of LV2's C interface are our own (LV2 core 18.0,
//! <https://lv2plug.in/ns/lv2core>): they are one structure and one function, and no crate of them
//! is maintained.
//!
//! All state of a plug-in that a host should save is in its control ports, which hosts save without
//! our doing; what it has learned of the programme starts anew.

mod ffi;
mod meter;
mod normalizer;
pub mod table;
pub mod turtle;

pub use ffi::{Descriptor, lv2_descriptor};

/// What one plug-in does between its ports. Nothing allocates after construction.
trait Processor {
    /// Forgets everything but its configuration; the next controls take effect at once.
    fn reset(&mut self);

    /// Takes the values of the control inputs, in the order of the table, each within its range.
    fn set_controls(&mut self, controls: &[f32]);

    /// Processes interleaved frames in place: at most [`BLOCK_FRAMES`].
    fn process(&mut self, block: &mut [f32]);

    /// Writes the values of the control outputs, in the order of the table.
    fn report(&mut self, outputs: &mut [f32]);
}

/// Hosts may pass blocks of any size; longer ones are processed in pieces.
const BLOCK_FRAMES: usize = 256;
