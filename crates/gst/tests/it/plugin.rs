//! The plug-in as a file, in programs of GStreamer: how it loads, what it logs, and what valgrind
//! reports.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use gst::prelude::*;

use crate::init;
use crate::signals::folder;

/// Runs programs with our plug-in, the few of GStreamer's that they need, and a registry of these.
pub(crate) struct Programs {
    plugins: PathBuf,
}

impl Programs {
    pub(crate) fn find() -> Option<&'static Self> {
        static FOUND: OnceLock<Option<Programs>> = OnceLock::new();
        FOUND.get_or_init(Self::set_up).as_ref()
    }

    fn set_up() -> Option<Self> {
        if Command::new("gst-launch-1.0").arg("--version").output().is_err() {
            println!("skipped: no gstreamer1.0-tools");
            return None;
        }
        init();
        let plugins = folder("plugins");
        let core = gst::Registry::get().find_plugin("coreelements").unwrap().filename().unwrap();
        for name in [
            "audioconvert",
            "audioresample",
            "audiotestsrc",
            "coreelements",
            "playback",
            "typefindfunctions",
            "volume",
            "wavenc",
            "wavparse",
        ] {
            let file = format!("libgst{name}.so");
            std::os::unix::fs::symlink(core.with_file_name(&file), plugins.join(&file)).unwrap();
        }
        let ours = std::env::current_exe().unwrap().with_file_name("libgstaulos.so");
        std::fs::copy(ours, plugins.join("libgstaulos.so")).expect("cargo has built the plug-in");
        let new = Self { plugins };
        // What is logged while the registry is made is about other plug-ins.
        assert!(new.run(Command::new("gst-inspect-1.0").arg("aulosmeter")).status.success());
        Some(new)
    }

    /// Runs commands of a shell; gives what they print. They must succeed, and log nothing up to
    /// this level of `GST_DEBUG`.
    pub(crate) fn shell(&self, level: &str, commands: &str, folder: &Path) -> String {
        let commands = format!("export GST_DEBUG={level}\n{commands}");
        let mut command = Command::new("bash");
        command.args(["-e", "-o", "pipefail", "-c", &commands]).current_dir(folder);
        let Output { status, stdout, stderr } = self.run(&mut command);
        let [out, errors] = [stdout, stderr].map(|text| String::from_utf8(text).unwrap());
        assert!(status.success(), "{commands}\n{out}\n{errors}");
        let warnings = errors.lines().filter(|line| {
            // Of the base class, for every element that mixes, before its sources have started.
            !line.trim().is_empty() && !line.contains("aggregator_query_latency_unlocked")
        });
        assert_eq!(warnings.collect::<Vec<_>>(), [""; 0]);
        out
    }

    fn run(&self, command: &mut Command) -> Output {
        command
            .env("GST_PLUGIN_PATH", &self.plugins)
            .env("GST_PLUGIN_SYSTEM_PATH", &self.plugins)
            .env("GST_REGISTRY", self.plugins.join("registry.bin"))
            .env("GST_DEBUG", "2")
            .env("G_DEBUG", "fatal-criticals")
            .output()
            .expect("the program starts")
    }

    /// Runs one test in a process of its own, with `first` in front of the program.
    fn rerun(&self, first: &[&str], test: &str, variable: (&str, &Path)) -> Output {
        let program = std::env::current_exe().unwrap();
        let program = program.to_str().unwrap();
        let words = first.iter().copied().chain([program, "--exact", test]);
        let words: Vec<_> = words.collect();
        let mut command = Command::new(words[0]);
        self.run(command.args(&words[1..]).env(variable.0, variable.1))
    }
}

/// In a process of its own: here the elements are registered already.
#[test]
fn it_can_be_loaded_two_hundred_times() {
    let Some(path) = std::env::var_os("AULOS_TEST_LOAD") else {
        let Some(programs) = Programs::find() else { return };
        let path = programs.plugins.join("libgstaulos.so");
        let name = "plugin::it_can_be_loaded_two_hundred_times";
        let output = programs.rerun(&[], name, ("AULOS_TEST_LOAD", &path));
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return;
    };
    gst::init().unwrap();
    for _ in 0..200 {
        let plugin = gst::Plugin::load_file(&path).expect("it loads");
        assert_eq!(plugin.plugin_name(), "aulos");
    }
    make_elements(10);
}

#[test]
fn each_element_can_be_there_two_hundred_times() {
    init();
    make_elements(200);
}

const WARNINGS: &str = "2";

fn make_elements(count: usize) {
    for name in ["aulosnormalize", "aulosmeter", "aulosfallback"] {
        let make = || gst::ElementFactory::make(name).build().expect("an element");
        let all: Vec<_> = std::iter::repeat_with(make).take(count).collect();
        for element in &all {
            element.set_state(gst::State::Paused).expect("it starts");
        }
        for element in &all {
            element.set_state(gst::State::Null).expect("it stops");
        }
    }
}

#[test]
fn nothing_is_logged_as_a_warning() {
    let Some(programs) = Programs::find() else { return };
    programs.shell(
        WARNINGS,
        "gst-launch-1.0 -q audiotestsrc num-buffers=300 ! audio/x-raw,rate=48000 ! aulosnormalize \
         ! audioconvert ! audio/x-raw,format=S16LE ! aulosnormalize mode=low ! aulosmeter \
         ! fakesink\n\
         gst-launch-1.0 -q aulosfallback name=s ! fakesink audiotestsrc num-buffers=100 ! s. \
         audiotestsrc num-buffers=50 ! s.",
        &folder("log"),
    );
}

#[test]
fn a_value_out_of_range_is_refused_by_name() {
    let Some(programs) = Programs::find() else { return };
    let mut command = Command::new("gst-launch-1.0");
    command.args("audiotestsrc num-buffers=1 ! aulosnormalize target=3 ! fakesink".split(' '));
    let Output { stdout, stderr, .. } = programs.run(&mut command);
    let text = String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned();
    assert!(text.contains("out of range for property 'target'"), "{text}");
}

#[test]
fn a_thousand_changes_of_state() {
    init();
    let pipeline = gst::parse::launch(
        "aulosfallback name=switch ! aulosnormalize mode=low ! aulosmeter ! fakesink sync=false \
         audiotestsrc num-buffers=3 ! audio/x-raw,rate=48000 ! switch. \
         audiotestsrc num-buffers=3 ! audio/x-raw,rate=44100 ! switch.",
    );
    let pipeline = pipeline.unwrap();
    let bus = pipeline.bus().unwrap();
    for _ in 0..250 {
        for state in [gst::State::Ready, gst::State::Paused, gst::State::Ready, gst::State::Null] {
            pipeline.set_state(state).unwrap();
            let (result, now, _) = pipeline.state(gst::ClockTime::from_seconds(60));
            assert_eq!((result.is_ok(), now), (true, state));
        }
        bus.set_flushing(true);
        bus.set_flushing(false);
    }
}

/// Errors count wherever they are, leaks where our code is in the stack.
#[test]
fn valgrind_finds_nothing_in_them() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("skipped: no valgrind");
        return;
    }
    let Some(programs) = Programs::find() else { return };
    let valgrind = [
        "valgrind",
        "--error-exitcode=9",
        "--leak-check=full",
        "--show-leak-kinds=definite",
        "--errors-for-leak-kinds=none",
        "--num-callers=40",
    ];
    let test = "plugin::a_thousand_changes_of_state";
    let output = programs.rerun(&valgrind, test, ("GST_REGISTRY_FORK", Path::new("no")));
    let [out, errors] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success() && out.contains("1 passed"), "{out}\n{errors}");
    assert!(errors.contains("LEAK SUMMARY"), "{errors}");
    let records = errors.split("definitely lost in loss record").skip(1);
    let record = |text: &str| text.split("== \n").next().unwrap_or_default().to_owned();
    let leaks: Vec<_> = records.map(record).filter(|text| text.contains("gstaulos::")).collect();
    assert!(leaks.is_empty(), "{}", leaks.join("\n"));
}
