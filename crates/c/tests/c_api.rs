//! C programs, built with `pkg-config` against what `make install-capi` installs, as their users
//! build them.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]
#![allow(clippy::disallowed_methods, reason = "a program is written into a file")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const HERE: &str = env!("CARGO_MANIFEST_DIR");
const PREFIX: &str = "/opt/aulos";

fn scratch() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The root below which both libraries are installed.
fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let root = scratch().join("c-root");
        let mut install = Command::new("make");
        install.arg("install-capi").current_dir(Path::new(HERE).join("../.."));
        // The folder that cargo locks for these tests is another one.
        install.env("CARGO_TARGET_DIR", scratch().join("target"));
        install.env("CARGO_NET_OFFLINE", "true").env("PROFILE", "dev");
        output(install.env("DESTDIR", &root).env("PREFIX", PREFIX));
        root
    })
}

fn pkg_config(arguments: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.env("PKG_CONFIG_SYSROOT_DIR", root());
    command.env("PKG_CONFIG_LIBDIR", root().join("opt/aulos/lib/pkgconfig"));
    output(command.args(arguments)).split_whitespace().map(str::to_owned).collect()
}

const STRICT: [&str; 6] = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-std=c11", "-O1"];

/// The tests in C: `tests/NAME.c`.
const PROGRAMS: [&str; 3] = ["normalizer", "notify", "pipe"];

/// Builds `tests/NAME.c`.
fn build(name: &str, flags: &[&str], link: &[&str]) -> PathBuf {
    let program = scratch().join(format!("c-{name}{}", flags.concat().replace('/', "")));
    let mut cc = Command::new("cc");
    cc.args(STRICT).args(["-g", "-pthread"]).args(flags);
    cc.arg(format!("-DVERSION=\"{}\"", env!("CARGO_PKG_VERSION")));
    cc.arg("-o").arg(&program).arg(Path::new(HERE).join("tests").join(format!("{name}.c")));
    cc.args(pkg_config(&["--cflags", "libaulos"])).args(link).arg("-lm");
    output(&mut cc);
    program
}

/// Builds `examples/NAME.cpp`.
fn build_example(compiler: &str, name: &str, flags: &[&str]) -> PathBuf {
    let program = scratch().join(format!("{compiler}-{name}{}", flags.concat()));
    let mut cpp = Command::new(compiler);
    cpp.args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-std=c++17", "-O1", "-g", "-pthread"]);
    cpp.args(flags).arg("-o").arg(&program);
    cpp.arg(Path::new(HERE).join("examples").join(format!("{name}.cpp")));
    output(cpp.args(pkg_config(&["--cflags", "--libs", "libaulos"])));
    program
}

fn run(command: &mut Command) {
    command.env("LD_LIBRARY_PATH", root().join("opt/aulos/lib"));
    assert_eq!(output(command), "ok\n");
}

fn shared() -> Vec<String> {
    pkg_config(&["--libs", "libaulos"])
}

#[test]
fn the_installed_files_have_the_links_and_versions_of_a_package() {
    let lib = root().join("opt/aulos/lib");
    for (name, soname, exact) in [
        ("libaulos", "libaulos.so.0", format!("libaulos.so.{}", env!("CARGO_PKG_VERSION"))),
        ("libebur128", "libebur128.so.1", "libebur128.so.1.2.6".to_owned()),
    ] {
        let linked = |name: &str| std::fs::read_link(lib.join(name)).unwrap();
        assert_eq!(linked(&format!("{name}.so")), Path::new(soname));
        assert_eq!(linked(soname), Path::new(&exact));
        let dynamic = output(Command::new("readelf").arg("-d").arg(lib.join(&exact)));
        assert!(dynamic.contains(&format!("soname: [{soname}]")), "{dynamic}");
        assert!(lib.join(format!("{name}.a")).is_file());
        let file = std::fs::read_to_string(lib.join(format!("pkgconfig/{name}.pc"))).unwrap();
        assert!(file.starts_with(&format!("prefix={PREFIX}\n")), "{file}");
        assert!(exact.ends_with(&pkg_config(&["--modversion", name]).concat()));
    }
    let include = root().join("opt/aulos/include");
    assert!(include.join("aulos.h").is_file() && include.join("ebur128.h").is_file());
}

#[test]
fn the_exports_are_the_functions_of_the_header() {
    let library = root().join("opt/aulos/lib/libaulos.so");
    let listed = output(Command::new("nm").args(["-D", "--defined-only"]).arg(&library));
    let mut exports: Vec<&str> = listed.lines().filter_map(|l| l.split(' ').nth(2)).collect();
    let header = std::fs::read_to_string(Path::new(HERE).join("include/aulos.h")).unwrap();
    let calls = header.lines().filter(|line| !line.starts_with([' ', '/'])).filter_map(|line| {
        let name = line.split('(').next()?.rsplit([' ', '*']).next()?;
        (line.contains('(') && name.starts_with("aulos_")).then_some(name)
    });
    let mut functions: Vec<&str> = calls.collect();
    functions.sort_unstable();
    exports.sort_unstable();
    assert!(functions.len() > 20, "{functions:?}");
    assert_eq!(exports, functions);
}

/// Counts allocations, with functions that replace those of libc in the library too.
#[test]
fn programs_run_and_allocate_nothing_in_real_time_functions() {
    let libs = shared();
    let libs: Vec<&str> = libs.iter().map(String::as_str).collect();
    for name in PROGRAMS {
        run(&mut Command::new(build(name, &["-DCOUNT_MEMORY_CALLS"], &libs)));
    }
}

#[test]
fn a_program_links_the_static_library() {
    let private = pkg_config(&["--static", "--libs-only-l", "libaulos"]);
    let archive = root().join("opt/aulos/lib/libaulos.a");
    let mut link = vec![archive.to_str().unwrap()];
    link.extend(private.iter().map(String::as_str).filter(|library| *library != "-laulos"));
    let program = build("pipe", &["-DSTATIC"], &link);
    let needed = output(Command::new("readelf").arg("-d").arg(&program));
    assert!(!needed.contains("libaulos"), "{needed}");
    run(&mut Command::new(program));
}

#[test]
fn the_header_is_one_for_cpp_too() {
    let mut cpp = Command::new("cc");
    cpp.args(["-x", "c++", "-std=c++11", "-Wall", "-Wextra", "-Werror", "-pedantic"]);
    cpp.args(["-fsyntax-only"]).arg(Path::new(HERE).join("include/aulos.h"));
    let tried = cpp.output().unwrap();
    let error = String::from_utf8_lossy(&tried.stderr);
    if error.contains("cc1plus") {
        println!("skipped: no cc1plus");
        return;
    }
    // A header that is compiled as the main file.
    assert!(tried.status.success(), "{error}");
}

/// In real time, and faster, where every change arrives in order; undefined behaviour and wrong use
/// of memory on the side of C++ end the program.
#[test]
fn changes_on_the_audio_thread_reach_a_view_in_cpp() {
    for compiler in ["g++", "clang++"] {
        if Command::new(compiler).arg("--version").output().is_err() {
            println!("skipped: no {compiler}");
            continue;
        }
        let flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
        run(&mut Command::new(build_example(compiler, "parameter_view", &flags)));
        // What measures is compiled, and run only by hand: nothing here depends on a time.
        build_example(compiler, "notify_peers", &[]);
    }
}

#[test]
fn the_examples_of_the_readme_compile() {
    let readme = std::fs::read_to_string(Path::new(HERE).join("README.md")).unwrap();
    let blocks = readme.split("```c\n").skip(1).filter_map(|rest| rest.split("```").next());
    let parameters = "float *samples, size_t frames, float *out, size_t bytes, aulos_pipe_read_result result, \
         aulos_callback_function draw, void *view";
    let mut program = "#include <aulos.h>\n#include <stdio.h>\n".to_owned();
    for (number, block) in blocks.enumerate() {
        let function = format!("int example{number}({parameters})");
        program += &format!("{function};\n{function} {{\n{block}return 0;\n}}\n");
    }
    assert!(program.contains("example2"), "{program}");
    let source = scratch().join("c-readme.c");
    std::fs::write(&source, program).unwrap();
    let mut cc = Command::new("cc");
    cc.args(STRICT).args(["-Wno-unused-parameter", "-fsyntax-only"]).arg(source);
    output(cc.args(pkg_config(&["--cflags", "libaulos"])));
}

#[test]
fn valgrind_finds_no_error_and_no_leak() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("skipped: no valgrind");
        return;
    }
    let libs = shared();
    let libs: Vec<&str> = libs.iter().map(String::as_str).collect();
    let programs = PROGRAMS.map(|name| build(name, &["-DSHORT"], &libs));
    for program in programs.into_iter().chain([build_example("c++", "parameter_view", &[])]) {
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["-q", "--error-exitcode=9", "--leak-check=full"]);
        valgrind.args(["--errors-for-leak-kinds=all", "--fair-sched=yes"]);
        run(valgrind.arg(program));
    }
}
