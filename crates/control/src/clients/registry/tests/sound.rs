//! Sounds of clients.

use std::sync::Arc;

use aulos_core::Db;
use aulos_dsp::sound::{SoundChain, SoundPreset};

use super::*;

fn preset(preset: SoundPreset) -> Option<Arc<SoundChain>> {
    preset.chain().map(Arc::new)
}

fn moves(effects: &Effects) -> Vec<(SessionId, usize, ClientSound, bool)> {
    let moves = effects.commands.iter().filter_map(|command| match command {
        SessionCommand::MoveClient { session, station, sound, continues } => {
            Some((*session, *station, sound.clone(), *continues))
        }
        _ => None,
    });
    moves.collect()
}

#[test]
fn a_client_with_a_sound_continues_and_keeps_it() {
    let mut registry = registry();
    drop(hello(&mut registry, 1, "a"));
    drop(hello(&mut registry, 2, "b"));
    let bass = preset(SoundPreset::Bass);
    let sound = ClientSound { map: ChannelMap::Stereo, chain: bass.clone() };
    let effects = set_sound(&mut registry, "a", bass.clone(), 16).unwrap();
    assert_eq!(moves(&effects), [(SessionId(1), 1, sound.clone(), true)]);
    assert!(effects.save);
    assert_eq!(effects.notices, [Notice::Sound("a".to_owned())]);
    let again = set_sound(&mut registry, "a", bass, 16).unwrap();
    assert_eq!(moves(&again), [], "it plays on");
    let asks = ["a", "b"].map(|id| registry.greeting_of(id).map(|greeting| greeting.station));
    assert_eq!(asks, [Some(Greeting::DEFER_TO_CONTROL), Some(1)]);
    let group = group_of(&registry, "a");
    let moved = registry.set_stream(&group, "kitchen").unwrap();
    assert_eq!(moves(&moved), [(SessionId(1), 0, sound.clone(), false)], "another station");
    drop(registry.apply(departure(SessionId(1)), WallTime::default()));
    assert!(active_sounds(&registry).is_empty());
    assert_eq!(moves(&hello(&mut registry, 3, "a")), [(SessionId(3), 0, sound, false)]);
    // A sound that brings channels of its own begins anew, and has precedence over the map.
    drop(registry.set_map("a", ChannelMap::Left).unwrap());
    let swapped = SoundChain { map: ChannelMap::Swap, ..SoundChain::default() };
    let effects = set_sound(&mut registry, "a", Some(Arc::new(swapped)), 16).unwrap();
    let [(_, _, sound, false)] = &moves(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!(sound.map, ChannelMap::Swap);
    let end = set_sound(&mut registry, "a", None, 16).unwrap();
    let left = ClientSound { map: ChannelMap::Left, chain: None };
    assert_eq!(moves(&end), [(SessionId(3), 0, left, false)]);
    let unknown = set_sound(&mut registry, "x", None, 16);
    assert_eq!(unknown, Err(SoundError::NotFound(NotFound::Client)));
}

#[test]
fn equal_sounds_of_a_station_count_once() {
    let mut registry = registry();
    for (session, id) in [(1, "a"), (2, "b"), (3, "c")] {
        drop(hello(&mut registry, session, id));
    }
    let set =
        |registry: &mut Registry, id, kind| set_sound(registry, id, preset(kind), 2).map(drop);
    assert_eq!(set(&mut registry, "a", SoundPreset::Bass), Ok(()));
    assert_eq!(set(&mut registry, "b", SoundPreset::Bass), Ok(()));
    assert_eq!(set(&mut registry, "c", SoundPreset::Voice), Ok(()));
    let third = set(&mut registry, "b", SoundPreset::Treble);
    assert_eq!(third, Err(SoundError::TooManySounds(2)));
    // The only client of a sound makes room for another one.
    assert_eq!(set(&mut registry, "c", SoundPreset::Quiet), Ok(()));
    assert_eq!(set(&mut registry, "a", SoundPreset::Flat), Ok(()));
    assert_eq!(set(&mut registry, "b", SoundPreset::Treble), Ok(()));
}

#[test]
fn a_sound_is_saved_with_its_client() {
    let mut registry = registry();
    drop(hello(&mut registry, 1, "a"));
    let mut chain = SoundPreset::Voice.chain().unwrap();
    chain.left.gain = Db::new(-1.25);
    drop(set_sound(&mut registry, "a", Some(Arc::new(chain.clone())), 16).unwrap());
    let saved = render(&registry);
    let state: serde_json::Value = serde_json::from_str(&saved).unwrap();
    let dir = aulos_blackbox::scratch::ScratchDir::new("client-sound").unwrap();
    store::save(&dir, &saved).unwrap();
    let store::LoadOutcome::Saved(loaded) = store::load(&dir).unwrap() else { panic!("{state}") };
    let client = &loaded.groups[0].clients[0];
    assert_eq!(client.chain.as_deref(), Some(&chain), "{saved}");
    // Controllers get the keys of Snapcast.
    let shown = serde_json::json!(ClientJson::from(client));
    assert_eq!(shown["config"].get("sound"), None);
}
