//! Cover art from control scripts and sources, for the page's `<img>`.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};

use aulos_proto::uri::percent_encode_url;
use bytes::Bytes;

/// Limits of the cache, in pictures and bytes: one for each of many stations, and the most recent
/// ones.
const MAX_PICTURES: usize = 256;
const MAX_BYTES: usize = 32 << 20;
/// Largest picture in bytes.
pub(crate) const MAX_PICTURE: usize = 4 << 20;

/// A cache of pictures that drops the oldest when it is full.
#[derive(Debug, Default)]
pub(crate) struct ArtCache {
    base_url: String,
    pictures: VecDeque<(String, Bytes)>,
    names: RandomState,
}

impl ArtCache {
    /// An empty cache, whose pictures are served under this base URL.
    pub(crate) fn new(base_url: String) -> Self {
        Self { base_url, ..Self::default() }
    }

    /// Stores a picture; returns the address under which controllers find it.
    pub(crate) fn add(&mut self, picture: Vec<u8>, extension: &str) -> Option<String> {
        let name = self.insert(picture, extension)?;
        Some(format!("{}{PICTURE_PATH}{}", self.base_url, percent_encode_url(&name)))
    }

    /// Stores a picture; returns its name.
    pub(crate) fn insert(&mut self, picture: Vec<u8>, extension: &str) -> Option<String> {
        let (extension, _) = IMAGE_TYPES.iter().find(|(known, _)| *known == extension)?;
        if picture.is_empty() || picture.len() > MAX_PICTURE {
            return None;
        }
        let name = format!("{:016x}.{extension}", self.names.hash_one(&picture));
        self.pictures.retain(|(other, _)| *other != name);
        self.pictures.push_back((name.clone(), picture.into()));
        let too_much = |all: &VecDeque<(String, Bytes)>| {
            let bytes: usize = all.iter().map(|(_, picture)| picture.len()).sum();
            all.len() > MAX_PICTURES || bytes > MAX_BYTES
        };
        while too_much(&self.pictures) {
            self.pictures.pop_front();
        }
        Some(name)
    }

    /// A picture and its media type.
    pub(crate) fn get(&self, name: &str) -> Option<(&'static str, Bytes)> {
        let (_, picture) = self.pictures.iter().find(|(known, _)| known == name)?;
        let extension = name.rsplit('.').next()?;
        let (_, media) = IMAGE_TYPES.iter().find(|(known, _)| *known == extension)?;
        Some((media, picture.clone()))
    }
}

/// The extension of a picture by its first bytes.
pub(crate) fn extension(picture: &[u8]) -> Option<&'static str> {
    let heads: [(&[u8], _); 5] = [
        (b"\xff\xd8", "jpg"),
        (b"\x89PNG", "png"),
        (b"BM", "bmp"),
        (b"GIF8", "gif"),
        (b"RIFF", "webp"),
    ];
    heads.into_iter().find(|(head, _)| picture.starts_with(head)).map(|(_, end)| end)
}

/// Path of a picture, with the key of its name.
const PICTURE_PATH: &str = "/__image_cache?name=";

/// The name of a picture in the cache, from the address under which controllers find it.
pub(crate) fn picture_name(url: &str) -> Option<&str> {
    url.split_once(PICTURE_PATH).map(|(_, name)| name)
}

/// Media types by extension. SVG is missing because it can contain scripts.
const IMAGE_TYPES: [(&str, &str); 6] = [
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("png", "image/png"),
    ("gif", "image/gif"),
    ("webp", "image/webp"),
    ("bmp", "image/bmp"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_kept_as_long_as_there_is_room() {
        let mut art = ArtCache::default();
        let first = art.insert(vec![1; 1_000], "png").unwrap();
        assert_eq!(art.get(&first).unwrap(), ("image/png", vec![1; 1_000].into()));
        assert_eq!(art.insert(vec![1; 1_000], "png").as_ref(), Some(&first));
        for number in 0..20 {
            assert!(art.insert(vec![number; MAX_PICTURE], "jpg").is_some());
        }
        assert_eq!(art.get(&first), None);
        let bytes: usize = art.pictures.iter().map(|(_, picture)| picture.len()).sum();
        assert!(bytes <= MAX_BYTES);
        for number in 0..1_000_u16 {
            assert!(art.insert(number.to_le_bytes().to_vec(), "gif").is_some());
        }
        assert!(art.pictures.len() <= MAX_PICTURES);
    }

    #[test]
    fn a_picture_is_found_by_its_address() {
        let mut art = ArtCache::new("http://house:1780".to_owned());
        let url = art.add(vec![1], extension(b"\x89PNG...").unwrap()).unwrap();
        assert!(url.starts_with("http://house:1780/"));
        let (media, picture) = art.get(picture_name(&url).unwrap()).unwrap();
        assert_eq!((media, picture.as_ref()), ("image/png", &[1][..]));
        assert_eq!(picture_name("http://elsewhere/cover.jpg"), None);
        assert_eq!(extension(b"<svg>"), None);
    }

    #[test]
    fn what_is_no_picture_is_not_kept() {
        let mut art = ArtCache::default();
        assert_eq!(art.insert(vec![1], "svg"), None);
        assert_eq!(art.insert(vec![1], "../x"), None);
        assert_eq!(art.insert(vec![], "png"), None);
        assert_eq!(art.insert(vec![0; MAX_PICTURE + 1], "png"), None);
        assert_eq!(art.get("../server.json"), None);
    }
}
