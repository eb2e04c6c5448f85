//! The page in a real browser: it shows the station and plays it.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use aulos_blackbox::browser::Browser;
use aulos_blackbox::peer::find_or_skip;
use aulos_blackbox::scratch::Scratch;
use aulos_blackbox::server::Aulos;
use aulos_blackbox::signal::{Bits, RATE, tonal, write_wav};

use crate::reload::Listeners;
use crate::{turn, wait_for};

/// Plays `src` (or what the page's own player has), and gives how far it came in three seconds.
const PLAY: &str = r"(async src => {
    const audio = document.querySelector('audio') ?? document.body.appendChild(new Audio());
    if (src) audio.src = src;
    await audio.play();
    await new Promise(done => setTimeout(done, 3000));
    if (audio.error) throw new Error(audio.error.message);
    return audio.currentTime;
})";

/// The judge before a file that is known to play: if this fails, the browser has no sound at all.
#[test]
fn the_judge_hears_a_file() {
    let Some(program) = find_or_skip("chromium") else { return };
    let _turn = turn();
    let scratch = Scratch::new("judge").unwrap();
    let file = scratch.join("tone.wav");
    write_wav(File::create(&file).unwrap(), &tonal(10 * RATE, Bits::B16), Bits::B16).unwrap();
    let page = scratch.join("page.html");
    std::fs::write(&page, "<!doctype html><audio src=tone.wav></audio>").unwrap();
    let url = format!("file://{}", page.display());
    let mut browser = Browser::open(&program, &scratch, &url).unwrap();
    let loaded = "document.readyState == 'complete' && !!document.querySelector('audio')";
    wait_for("the page", Duration::from_secs(20), || browser.run(loaded).unwrap() == true);
    let played = browser.run(&format!("{PLAY}()")).unwrap();
    assert!(played.as_f64().is_some_and(|s| (2.0..4.0).contains(&s)), "{played}");
}

#[test]
fn the_page_shows_what_the_normaliser_does_and_lets_people_compare() {
    let Some(program) = find_or_skip("chromium") else { return };
    let _turn = turn();
    let scratch = Scratch::new("steady").unwrap();
    let config = "[[station]]\nname = \"default\"\nsources = [\"demo://\"]\n\
        normalize = { target = -18.0, mode = \"low\" }\n\
        equalizer = [{ type = \"low-shelf\", hz = 120, gain_db = 3 }]\n";
    let server = Aulos::start(&scratch, config).unwrap();
    let mut browser =
        Browser::open(&program, &scratch, &format!("http://{}/", server.http)).unwrap();
    let says = |browser: &mut Browser, text: &str| {
        let shown = format!("(document.body?.innerText ?? '').includes('{text}')");
        wait_for(text, Duration::from_secs(20), || browser.run(&shown).unwrap() == true);
    };
    says(
        &mut browser,
        "Normalized to \u{2212}18 LUFS, at most \u{2212}1 dBTP, mode low: 0.01 s later",
    );
    says(&mut browser, "Equalizer: low-shelf 120 Hz +3 dB");
    let compare =
        "[...document.querySelectorAll('button')].find(one => one.textContent == 'Compare')";
    browser.run(&format!("{compare}.click()")).unwrap();
    says(&mut browser, "you hear it as it comes in");
    let pressed = browser.run(&format!("{compare}.getAttribute('aria-pressed')")).unwrap();
    assert_eq!(pressed, "true");
    let picture = browser.screenshot().unwrap();
    let kept = std::env::current_exe().unwrap().ancestors().nth(3).map(PathBuf::from).unwrap();
    std::fs::write(kept.join("page-normalized.png"), picture).unwrap();
    drop(browser);
    server.stop().unwrap();
}

#[test]
fn the_page_shows_the_station_and_plays_it() {
    let Some(program) = find_or_skip("chromium") else { return };
    let _turn = turn();
    let scratch = Scratch::new("page").unwrap();
    let config = "[[station]]\nname = \"default\"\nsources = [\"demo://\"]\n";
    let server = Aulos::start(&scratch, config).unwrap();
    let clients = Listeners::start(&server, 1..3);
    let url = format!("http://{}/", server.http);
    let mut browser = Browser::open(&program, &scratch, &url).unwrap();
    let shown = "(document.body?.innerText ?? '').includes('default')";
    wait_for("the station's name", Duration::from_secs(20), || browser.run(shown).unwrap() == true);
    let has_player = browser.run("!!document.querySelector('audio')").unwrap();
    assert_eq!(has_player, true, "the page has a player");
    let played = browser.run(&format!("{PLAY}('/listen/default')")).unwrap();
    assert!(played.as_f64().is_some_and(|s| s > 1.0), "played {played} s of 3");
    let health = "[...document.querySelectorAll('.health')].map(one => one.textContent).join()";
    wait_for("how each client does", Duration::from_secs(20), || {
        let shown = browser.run(health).unwrap();
        let shown: Vec<&str> = shown.as_str().unwrap_or_default().split(',').collect();
        shown.len() == 2 && shown.iter().all(|one| one.ends_with(" ms"))
    });
    let picture = browser.screenshot().unwrap();
    assert!(picture.starts_with(b"\x89PNG"), "{} bytes", picture.len());
    // Kept for people to look at, beside the program that is tested.
    let kept = std::env::current_exe().unwrap().ancestors().nth(3).map(PathBuf::from).unwrap();
    std::fs::write(kept.join("page.png"), picture).unwrap();
    let loud = browser.run(
        "performance.getEntriesByType('resource').every(e => e.name.startsWith(location.origin))",
    );
    assert_eq!(loud.unwrap(), true, "the page fetches from its own server only");
    drop(browser);
    clients.end();
    server.stop().unwrap();
}
