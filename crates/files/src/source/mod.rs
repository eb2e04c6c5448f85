//! Jobs of the codec pool that decode for stations: a file or an encoded stream as a source, and
//! the loudness of a file before it is played.

mod file;
mod measure;
mod passed_file;
mod stream;

pub use file::{FileSource, FileState};
pub use measure::{FileMeter, StreamMeter};
pub use passed_file::{PassedFile, PassedFileError};
pub use stream::{StreamParts, StreamSource};
