//! Packets of SRT.

use aulos_proto::srt::{ControlKind, KeyMaterial, SrtPacket};

/// A packet that is read can be written, and is then the same packet.
pub fn srt(data: &[u8]) {
    let Some(packet) = SrtPacket::parse(data) else { return };
    if let SrtPacket::Control(control) = &packet {
        match &control.kind {
            ControlKind::Nak(ranges) => {
                assert!(ranges.iter().count() <= data.len() / 4);
            }
            ControlKind::KeyRequest(key) => {
                if let Some(key) = KeyMaterial::parse(key) {
                    assert_eq!(KeyMaterial::parse(&key.emit()), Some(key));
                }
            }
            _ => {}
        }
    }
    let mut written = Vec::new();
    packet.emit(&mut written);
    let Some(again) = SrtPacket::parse(&written) else { unreachable!("what we write is read") };
    let mut twice = Vec::new();
    again.emit(&mut twice);
    assert_eq!(written, twice);
}
