//! Uploads without faults, and with configuration errors.

use super::*;
use aulos_control::backend::{UploadEvent, UploadPhase};

#[test]
fn files_arrive_bit_for_bit_and_go_here_only_then() {
    let Some((server, dir)) = server("upload-plain") else { return };
    let station = RecordingHarness::start(&dir, &config(&server.endpoint()));
    let sizes = [0, 1, 700_000, PART, PART + 1, 3 * PART - 7];
    let files: Vec<_> = (0..).zip(sizes).map(|(seed, size)| noise(seed, size)).collect();
    for (number, bytes) in files.iter().enumerate() {
        station.record(&format!("2026/{number} ä+&.wav"), bytes);
    }
    let (flac, sidecar) = (station.path("b.flac"), station.path("b.flac.json"));
    std::fs::write(&flac, b"sound").unwrap();
    std::fs::write(&sidecar, b"{}").unwrap();
    station.uploader.add(&flac, Some(&sidecar)).unwrap();
    station.uploader.add(&flac, Some(&sidecar)).unwrap();
    station.wait_until_idle();
    for (number, bytes) in files.iter().enumerate() {
        let name = format!("2026/{number} ä+&.wav");
        let there = server.object(&format!("radio/roof/{name}"));
        assert!(there.as_ref() == Some(bytes), "{name}: {:?} bytes", there.map(|all| all.len()));
        assert!(
            !station.path(&name).exists() && !station.uploader.is_waiting(&station.path(&name))
        );
    }
    assert_eq!(server.object("radio/roof/b.flac.json").unwrap(), b"{}");
    assert!(!flac.exists() && !sidecar.exists());
    assert_eq!((server.objects().len(), server.parts()), (files.len() + 2, 0));
    let state = station.uploader.state();
    let total: usize = sizes.iter().sum::<usize>() + 5;
    assert_eq!((state.done, state.done_bytes), (files.len() as u64 + 1, total as u64));
    assert_eq!((state.phase, state.failures, &state.error), (UploadPhase::Idle, 0, &None));
    let events = station.uploader.take_events();
    let told = |event: &UploadEvent| match event {
        UploadEvent::Uploaded { url, tries: 0, .. } => url == "s3://tapes/radio/roof/b.flac",
        _ => false,
    };
    assert!(events.len() == files.len() + 1 && events.iter().any(told), "{events:?}");
    station.stop();
}

#[test]
fn local_files_are_kept_if_configured_and_sent_once() {
    let Some((server, dir)) = server("upload-keep") else { return };
    let mut config = UploadTarget { keep_local: true, ..config(&server.endpoint()) };
    config.storage.prefix = String::new();
    let station = RecordingHarness::start(&dir, &config);
    station.record("a.wav", b"one");
    station.wait_until_idle();
    assert_eq!(std::fs::read(station.path("a.wav")).unwrap(), b"one");
    let object = dir.join("s3/tapes/a.wav");
    let before = std::fs::metadata(&object).unwrap().modified().unwrap();
    station.uploader.add(&station.path("a.wav"), None).unwrap();
    station.wait_until_idle();
    assert_eq!(std::fs::metadata(&object).unwrap().modified().unwrap(), before);
    station.stop();
}

#[test]
fn a_foreign_object_is_never_overwritten() {
    let Some((server, dir)) = server("upload-taken") else { return };
    std::fs::create_dir_all(dir.join("s3/tapes/radio/roof")).unwrap();
    std::fs::write(dir.join("s3/tapes/radio/roof/a.wav"), b"theirs").unwrap();
    let station = RecordingHarness::start(&dir, &config(&server.endpoint()));
    station.record("a.wav", b"ours");
    station.wait_until_idle();
    assert_eq!(server.object("radio/roof/a.wav").unwrap(), b"theirs");
    let objects = server.objects();
    let [ours, _] = &objects[..] else { panic!("{objects:?}") };
    assert_eq!(server.object(ours).unwrap(), b"ours");
    assert!(ours.starts_with("radio/roof/a-") && ours.ends_with(".wav"), "{ours}");
    let told = station.uploader.take_events();
    let UploadEvent::Uploaded { url, .. } = &told[0] else { panic!("{told:?}") };
    assert_eq!(*url, format!("s3://tapes/{ours}"));
    station.stop();
}

#[test]
fn permanent_errors_are_reported_and_no_file_is_lost() {
    let Some((server, dir)) = server("upload-mend") else { return };
    let right = config(&server.endpoint());
    let (secret, storage_class) = (RedactedDebug("hush-hush".to_owned()), Some("PILE".to_owned()));
    let wrong = |storage| UploadTarget { storage, ..right.clone() };
    let store = || right.storage.clone();
    for (wrong, remedy) in [
        (wrong(StorageTarget { storage_class, ..store() }), "correct `storage_class` of `upload`"),
        (
            wrong(StorageTarget { access_key: "WHO".to_owned(), ..store() }),
            "`access_key` of `upload` is unknown to the server",
        ),
        (
            wrong(StorageTarget { secret_key: secret, ..store() }),
            "`secret_key` of `upload` is wrong",
        ),
        (
            wrong(StorageTarget { endpoint: "http://127.0.0.1:1".to_owned(), ..store() }),
            "cannot be reached",
        ),
    ] {
        let station = RecordingHarness::start(&dir, &wrong);
        station.record("a.wav", b"kept");
        let told = || station.uploader.state().error.unwrap_or_default();
        wait("it is told", || !told().is_empty(), String::new);
        assert!(told().contains(remedy), "{remedy}: {}", told());
        assert!(!told().contains(&wrong.storage.secret_key.0));
        let permanent = !remedy.contains("reached");
        let wanted = if permanent { UploadPhase::Refused } else { UploadPhase::Waiting };
        wait("it waits", || station.uploader.state().phase == wanted, told);
        wait("it is tried again", || station.uploader.state().failures > 2, told);
        let failed = station.uploader.take_events();
        let [UploadEvent::Failed { permanent: is, .. }] = &failed[..] else { panic!("{failed:?}") };
        assert_eq!(*is, permanent, "once, however often it was tried");
        assert_eq!(std::fs::read(station.path("a.wav")).unwrap(), b"kept");
        assert!(station.uploader.is_waiting(&station.path("a.wav")));
        station.stop();
    }
    let station = RecordingHarness::start(&dir, &right);
    assert_eq!((station.uploader.state().waiting, station.uploader.state().waiting_bytes), (1, 4));
    station.wait_until_idle();
    assert_eq!(server.object("radio/roof/a.wav").unwrap(), b"kept");
    station.stop();
}

#[test]
fn a_missing_or_unreadable_file_does_not_block_others() {
    let Some((server, dir)) = server("upload-gone") else { return };
    let station = RecordingHarness::start(&dir, &config(&server.endpoint()));
    std::fs::create_dir(station.path("folder.wav")).unwrap();
    station.uploader.add(&station.path("folder.wav"), None).unwrap();
    station.uploader.add(&station.path("gone.wav"), None).unwrap();
    std::fs::write(station.path("soon.wav.part"), b"soon").unwrap();
    station.uploader.add(&station.path("soon.wav"), None).unwrap();
    station.record("good.wav", b"good");
    let tell = || format!("{:?}", station.uploader.state());
    wait("the good one", || server.object("radio/roof/good.wav").is_some(), tell);
    wait("the others", || station.uploader.state().waiting == 2, tell);
    assert_eq!(station.uploader.state().missing, 1);
    std::fs::rename(station.path("soon.wav.part"), station.path("soon.wav")).unwrap();
    wait("that with its name", || server.object("radio/roof/soon.wav").is_some(), tell);
    std::fs::remove_dir(station.path("folder.wav")).unwrap();
    station.wait_until_idle();
    station.stop();
}

#[test]
fn hundreds_that_waited_are_found_again() {
    let Some((server, dir)) = server("upload-many") else { return };
    let nowhere = config("http://127.0.0.1:1");
    let station = RecordingHarness::start(&dir, &nowhere);
    for number in 0..600_u64 {
        station.record(&format!("{number}.wav"), &number.to_le_bytes());
    }
    station.stop();
    let station = RecordingHarness::start(&dir, &config(&server.endpoint()));
    assert_eq!(station.uploader.state().waiting, 600);
    station.wait_until_idle();
    for number in 0..600_u64 {
        let there = server.object(&format!("radio/roof/{number}.wav"));
        assert_eq!(there.unwrap(), number.to_le_bytes());
    }
    station.stop();
}
