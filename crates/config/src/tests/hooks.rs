//! Hooks and the programs that they start.

use super::*;

#[test]
fn a_hook_is_told_everything_unless_it_says_what() {
    let two = station("sources = [\"demo://\"]").replace("\"a\"", "\"b\"");
    let text = station("sources = [\"demo://\"]")
        + &two
        + r#"
        [[hook]]
        run = "/bin/sh -c 'mail -s alarm me@example.org'"
        [[hook]]
        url = "https://[2001:db8::1]:8443/topic?a=b"
        on = ["over-ceiling", "silence"]
        stations = ["b"]
        timeout_s = 3
        headers = { Priority = "high" }
        token = "tk_secret"
        [[hook]]
        run = "/bin/sh"
        tries = 3
    "#;
    let resolved = load_text(&text, &[]).unwrap_or_else(|error| panic!("{error}"));
    let shown = format!("{:#?}\n", resolved.hooks);
    assert!(!shown.contains("secret") && !shown.contains("topic"), "{shown}");
    golden("hooks", &shown);
    let HookAction::Post(post) = &resolved.hooks[1].action else { panic!("{shown}") };
    assert_eq!((&post.host[..], post.port, &post.target[..]), ("2001:db8::1", 8_443, "/topic?a=b"));
    let headers: Vec<_> = post.headers.iter().map(|(name, value)| (name.as_str(), value)).collect();
    assert_eq!(headers[0].1, "high");
    assert_eq!(headers[1], ("authorization", &"Bearer tk_secret".parse().unwrap()));
}

#[test]
fn what_is_wrong_with_a_hook_is_said_where_it_stands() {
    let text = station("sources = [\"demo://\"]")
        + r#"
        [[hook]]
        [[hook]]
        run = "/bin/sh"
        url = "https://example.org"
        [[hook]]
        run = "/nonexistent/alarm --x"
        on = ["fallbak", "everything"]
        stations = ["kitchen", "aa"]
        token = "t"
        [[hook]]
        run = "bin/alarm"
        on = []
        [[hook]]
        run = "/proc/version"
        stations = []
        tries = 0
        [[hook]]
        run = ""
        [[hook]]
        url = "example.org/secret"
        [[hook]]
        url = "ftp://example.org/secret"
        [[hook]]
        url = "https://me:secret@example.org/"
        [[hook]]
        name = "sh"
        url = "http://example.org/a b"
        timeout_s = 3600
        [[hook]]
        name = "sh"
        url = "http://example.org"
        headers = { Host = "x", "a b" = "y", X-Y = 3 }
        token = "t"
        token_env = "NO_SUCH"
        [[hook]]
        name = "sh"
        url = "http://example.org"
        headers = { Authorization = "x" }
        token = "t"
        timeout = 3
    "#;
    let problems = first_problem(&text, &[]);
    assert!(!problems.contains("secret@") && !problems.contains("/secret"), "{problems}");
    golden("hooks_wrong", &problems);
    let one = load_text("[hook]\nrun = \"/bin/sh\"", &[]).unwrap_err().to_string();
    assert!(one.contains("two brackets"), "{one}");
}

#[test]
fn a_program_without_a_path_has_to_be_in_path() {
    let load = |path: &str| {
        let text = "[[hook]]\nrun = \"sh -c true\"";
        let mut env = env();
        env.variables.0.insert("PATH".to_owned(), path.to_owned());
        load(Some(ConfigFile { name: "aulos.toml", text }), &[], &env)
    };
    assert!(load("/nonexistent:/bin:/usr/bin").is_ok());
    let error = load("/nonexistent").unwrap_err().to_string();
    assert!(error.starts_with("aulos.toml:2:7: `run`: PATH has no program `sh`"), "{error}");
}
