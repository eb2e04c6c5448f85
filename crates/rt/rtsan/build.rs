//! Links the sanitizer's library, whose path `scripts/rtsan` provides. The whole archive, because
//! its replacements of malloc, write and the rest are found by name only.

fn main() {
    println!("cargo:rerun-if-env-changed=RTSAN_LIBRARY");
    let library = std::env::var("RTSAN_LIBRARY").expect("RTSAN_LIBRARY: run scripts/rtsan");
    for word in ["-Wl,--whole-archive", &library, "-Wl,--no-whole-archive", "-Wl,--export-dynamic"]
    {
        println!("cargo:rustc-link-arg-bins={word}");
    }
    for library in ["pthread", "dl", "m", "rt", "resolv"] {
        println!("cargo:rustc-link-arg-bins=-l{library}");
    }
}
