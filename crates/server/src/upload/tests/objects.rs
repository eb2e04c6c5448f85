//! Objects that are replaced and removed again, as HLS is.

use std::sync::Arc;
use std::time::Duration;

use super::super::UploadError;
use super::super::objects::ObjectStorage;
use super::*;

const HEADERS: (&str, &str) = ("audio/mp4", "max-age=31536000, immutable");

fn open(config: &UploadTarget) -> ObjectStorage {
    ObjectStorage::open(&config.storage, Arc::default(), Duration::from_secs(60)).unwrap()
}

fn bytes(text: &str) -> Arc<[u8]> {
    Arc::from(text.as_bytes())
}

fn run<T>(what: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(what)
}

#[test]
fn objects_are_replaced_read_listed_and_removed() {
    let Some((server, _dir)) = server("objects-plain") else { return };
    let config = config(&server.endpoint());
    run(async {
        let storage = open(&config);
        assert_eq!(storage.list(100).await.unwrap(), Vec::<String>::new());
        for text in ["one", "two"] {
            storage.put("flac/1.m4s", bytes(text), HEADERS, false).await.unwrap();
        }
        assert_eq!(server.object("radio/roof/flac/1.m4s").unwrap(), b"two");
        // The server stores what it was told of the contents.
        let stored = storage.headers("flac/1.m4s").await.unwrap();
        assert_eq!(stored, [HEADERS.0.to_owned(), HEADERS.1.to_owned()].map(Some));
        storage.put("flac/1.m4s", bytes("filled"), HEADERS, true).await.unwrap();
        storage.put("flac/2.m4s", bytes("filled"), HEADERS, true).await.unwrap();
        let contents = [storage.get("flac/1.m4s").await, storage.get("flac/2.m4s").await];
        assert_eq!(contents.map(Result::unwrap), [b"two".to_vec(), b"filled".to_vec()].map(Some));
        let mut names = storage.list(100).await.unwrap();
        names.sort();
        assert_eq!(names, ["flac/1.m4s", "flac/2.m4s"]);
        assert_eq!(storage.list(1).await.unwrap().len(), 1);
        for _ in 0..2 {
            storage.delete("flac/1.m4s").await.unwrap();
        }
        assert_eq!(storage.get("flac/1.m4s").await.unwrap(), None);
        assert_eq!(server.objects(), ["radio/roof/flac/2.m4s"]);
    });
}

#[test]
fn what_the_server_refuses_is_named() {
    let Some((server, _dir)) = server("objects-refused") else { return };
    let mut wrong = config(&server.endpoint());
    wrong.storage.access_key = "WHO".to_owned();
    let put = run(open(&wrong).put("a", bytes("x"), HEADERS, false)).unwrap_err();
    assert!(put.to_string().contains("`access_key` of `upload` is unknown"), "{put}");
    let mut gone = config("http://127.0.0.1:1");
    gone.storage.prefix = String::new();
    let put = run(open(&gone).put("a", bytes("x"), HEADERS, false)).unwrap_err();
    assert!(matches!(put, UploadError::Connect(_)), "{put}");
}
