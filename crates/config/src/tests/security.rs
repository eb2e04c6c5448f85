//! Users, certificates and secrets.

use super::*;

#[test]
fn what_is_wrong_with_users_and_certificates_is_told_at_once() {
    let text = r#"
[tls]
cert = "/nowhere/cert.pem"
client_role = "king"
enabled = false
require = true
[access]
anonymous = "all"
[limits]
sessions_per_address = 1
failed_logins = 3
[[user]]
name = "a:b"
role = "none"
password = "short"
[[user]]
name = "x"
role = "listen"
[[user]]
name = "x"
role = "listen"
password = "long enough"
password_env = "NOT_THERE"
token_file = "/nowhere/token"
[[user]]
role = "control"
token_env = "NOT_THERE"
"#;
    golden("security", &first_problem(text, &[]));
    let both = "[tls]\ncert = \"/nowhere/cert.pem\"\nkey = \"/nowhere/key.pem\"\n\
        client_ca = \"/nowhere/ca.pem\"";
    golden("certificates", &first_problem(both, &[]));
}

#[test]
fn secrets_come_from_files_and_variables_as_well() {
    use crate::security::users::{Role, SecretDigest};
    let scratch = aulos_blackbox::scratch::ScratchDir::new("secret").unwrap();
    let file = scratch.join("password");
    std::fs::write(&file, "of a file \nand nothing else\n").unwrap();
    let mut env = env();
    env.variables.0.insert("TOKEN".into(), "of the environment".into());
    let text = format!(
        "[[user]]\nname = \"a\"\nrole = \"admin\"\npassword_file = \"{}\"\ntoken_env = \"TOKEN\"\n\
         [[user]]\nname = \"b\"\nrole = \"listen\"\npassword = \"of the text\"",
        file.display()
    );
    let sets = ["user.b.role=control".to_owned()];
    let loaded = load(Some(ConfigFile { name: "aulos.toml", text: &text }), &sets, &env);
    let rules = loaded.unwrap_or_else(|error| panic!("{error}")).security.access;
    assert_eq!(rules.anonymous, Role::None);
    let [a, b] = &rules.users[..] else { panic!("{rules:?}") };
    assert_eq!((a.role, &a.password), (Role::Admin, &Some(SecretDigest::new("of a file "))));
    assert_eq!(a.token, Some(SecretDigest::new("of the environment")));
    assert_eq!((b.role, &b.password), (Role::Control, &Some(SecretDigest::new("of the text"))));
}

#[test]
fn what_an_editor_adds_to_a_secret_is_left_out_or_named() {
    use crate::security::users::SecretDigest;
    let scratch = aulos_blackbox::scratch::ScratchDir::new("editor").unwrap();
    let file = scratch.join("password");
    let loaded = |bytes: &[u8]| {
        std::fs::write(&file, bytes).unwrap();
        let text = format!(
            "[[user]]\nname = \"a\"\nrole = \"admin\"\npassword_file = \"{}\"\n",
            file.display()
        );
        load_text(&text, &[]).map(|resolved| {
            let password = resolved.security.access.users[0].password.clone();
            (password, resolved.warnings.join("\n"))
        })
    };
    let secret = |text: &str| Some(SecretDigest::new(text));
    for bytes in [&b"of a file\n"[..], b"of a file", b"\xef\xbb\xbfof a file\r\nmore\xff\n"] {
        let (password, warnings) = loaded(bytes).unwrap();
        assert_eq!((password, warnings.as_str()), (secret("of a file"), ""));
    }
    for (bytes, text) in [(&b"of a file \n"[..], "of a file "), (b"\tof a file", "\tof a file")] {
        let (password, warnings) = loaded(bytes).unwrap();
        assert_eq!(password, secret(text));
        assert!(warnings.contains("the secret begins or ends with a blank"), "{warnings}");
    }
    for (bytes, expected) in
        [(&b"\xff\xfeo\0f\0"[..], "it is UTF-16"), (b"p\xe4ssword", "it is not UTF-8")]
    {
        let error = loaded(bytes).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_token_belongs_to_one_user() {
    let token = "0123456789abcdef";
    let user = |name: &str, role: &str, secret: &str| {
        format!("[[user]]\nname = \"{name}\"\nrole = \"{role}\"\n{secret}\n")
    };
    let written = format!("token = \"{token}\"");
    let mut env = env();
    env.variables.0.insert("TOKEN".into(), token.into());
    let load_users = |users: &[String]| {
        let file = ConfigFile { name: "aulos.toml", text: &users.concat() };
        load(Some(file), &[], &env).map_err(|error| error.to_string())
    };
    // Wherever the second one comes from, and whichever role comes first.
    for second in [written.as_str(), "token_env = \"TOKEN\""] {
        for [first_role, second_role] in [["listen", "admin"], ["admin", "listen"]] {
            let error =
                load_users(&[user("a", first_role, &written), user("b", second_role, second)])
                    .unwrap_err();
            let expected = "users `a` and `b` have the same token\n    hint: give each user";
            assert!(error.contains(expected) && !error.contains(token), "{error}");
        }
    }
    // Other tokens are different users, and a password is one together with its name.
    let password = format!("password = \"{token}\"");
    let other = "token = \"0123456789abcdeF\"";
    load_users(&[
        user("a", "listen", &written),
        user("b", "admin", other),
        user("c", "listen", &password),
        user("d", "admin", &password),
    ])
    .unwrap();
}

#[test]
fn without_users_everybody_may_do_everything_unless_it_is_said() {
    use crate::security::users::Role;
    let anonymous = |text: &str| load_text(text, &[]).unwrap().security.access.anonymous;
    assert_eq!(anonymous(""), Role::Admin);
    assert_eq!(anonymous("[access]\nanonymous = \"listen\""), Role::Listen);
    let user = "[[user]]\nname = \"a\"\nrole = \"admin\"\npassword = \"12345678\"\n";
    assert_eq!(anonymous(user), Role::None);
    assert_eq!(anonymous(&format!("{user}[access]\nanonymous = \"listen\"")), Role::Listen);
}

#[test]
fn a_trusted_proxy_is_an_address_or_a_network_and_not_everyone() {
    let text = "[http]\ntrusted_proxies = [\"127.0.0.1\", \"10.1.0.0/16\", \"fd00::/8\"]\n";
    let http = load_text(text, &[]).unwrap().http;
    for (peer, expected) in [
        ("127.0.0.1", true),
        ("::ffff:127.0.0.1", true),
        ("127.0.0.2", false),
        ("10.1.255.255", true),
        ("10.2.0.0", false),
        ("fdff::1", true),
        ("::1", false),
    ] {
        assert_eq!(http.is_trusted_proxy(peer.parse().unwrap()), expected, "{peer}");
    }
    for (listed, expected) in [
        (
            "nginx.lan",
            "`nginx.lan` in `trusted_proxies` is no address\n    hint: expected an address, or a",
        ),
        ("10.0.0.0/33", "`10.0.0.0/33` in `trusted_proxies` is no address"),
        ("0.0.0.0/0", "`0.0.0.0/0` in `trusted_proxies` trusts every address"),
        ("::/0", "`::/0` in `trusted_proxies` trusts every address"),
    ] {
        let error = first_problem(&format!("[http]\ntrusted_proxies = [\"{listed}\"]\n"), &[]);
        assert!(error.contains(expected), "{error}");
    }
}

/// Files of a certificate authority and a server, by OpenSSL.
struct Authority {
    openssl: std::path::PathBuf,
    folder: aulos_blackbox::scratch::ScratchDir,
}

impl Authority {
    fn new() -> Option<Self> {
        let openssl = aulos_blackbox::peer::find_or_skip("openssl")?;
        let folder = aulos_blackbox::scratch::ScratchDir::new("authority").unwrap();
        let all = Self { openssl, folder };
        let curve = "ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
        all.run(&format!("req -x509 -newkey {curve} -subj /CN=House -keyout ca.key -out ca.pem"));
        all.run(&format!("req -newkey {curve} -subj /CN=box -keyout key.pem -out csr.pem"));
        all.issue("leaf.pem", 30);
        Some(all)
    }

    fn run(&self, arguments: &str) {
        let mut command = std::process::Command::new(&self.openssl);
        command.args(arguments.split(' ')).current_dir(&self.folder);
        let done = command.output().unwrap();
        assert!(done.status.success(), "{arguments}: {done:?}");
    }

    fn issue(&self, name: &str, days: i32) {
        // Without an extension OpenSSL writes a certificate of version 1.
        self.write("names", "subjectAltName = DNS:box\n");
        let ca = "-CA ca.pem -CAkey ca.key -CAcreateserial -extfile names";
        self.run(&format!("x509 -req -in csr.pem {ca} -days {days} -out {name}"));
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.join(name)).unwrap()
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.join(name), text).unwrap();
    }

    fn load(&self, cert: &str, key: &str) -> Result<ResolvedConfig, ConfigError> {
        let path = |name: &str| self.folder.join(name).display().to_string();
        let (cert, key) = (path(cert), path(key));
        load_text(&format!("[tls]\ncert = \"{cert}\"\nkey = \"{key}\"\n"), &[])
    }
}

#[test]
fn what_clients_object_to_in_a_certificate_is_a_warning() {
    let Some(all) = Authority::new() else { return };
    let chain = |leaf: &str| all.read(leaf) + &all.read("ca.pem");
    all.issue("old.pem", -1);
    all.write("chain.pem", &chain("leaf.pem"));
    all.write("expired.pem", &chain("old.pem"));
    all.write("twice.pem", &(all.read("leaf.pem") + &chain("leaf.pem")));
    for (cert, expected) in [
        ("chain.pem", None),
        ("expired.pem", Some("expired.pem: the certificate expired on ")),
        ("leaf.pem", Some("leaf.pem: the certificate of its issuer `House` is missing")),
        ("twice.pem", Some("certificate 2 is not that of the issuer of 1")),
    ] {
        let resolved = all.load(cert, "key.pem").unwrap();
        let warnings = resolved.warnings.join("\n");
        match expected {
            None => assert_eq!(warnings, ""),
            Some(text) => assert!(warnings.contains(text), "{cert}: {warnings}"),
        }
        // Thirty days from now, or yesterday.
        let left = resolved.security.tls.expires.unwrap();
        let left = left.duration_since(std::time::SystemTime::now()).map(|left| left.as_secs());
        let is_right = match left {
            Ok(left) => cert != "expired.pem" && left.abs_diff(30 * 86_400) < 3_600,
            Err(_) => cert == "expired.pem",
        };
        assert!(is_right, "{cert}: {left:?}");
    }
    // One of its own has no issuer that could be missing.
    let own = all.load("ca.pem", "ca.key").unwrap();
    assert_eq!(own.warnings, [""; 0]);
}

#[test]
fn a_certificate_or_key_that_cannot_be_used_is_refused_with_the_reason() {
    let Some(all) = Authority::new() else { return };
    all.write("reversed.pem", &(all.read("ca.pem") + &all.read("leaf.pem")));
    let half = |name: &str| {
        let text = all.read(name);
        text[..text.len() / 2].to_owned()
    };
    all.write("half.pem", &half("leaf.pem"));
    all.write("half.key", &half("key.pem"));
    all.run("pkey -in key.pem -aes256 -passout pass:abcd -out secret.key");
    all.run("ec -in key.pem -aes256 -passout pass:abcd -out older.key");
    all.run("ecparam -genkey -name secp521r1 -noout -out p521.key");
    all.run("req -x509 -key p521.key -subj /CN=box -out p521.pem");
    for (cert, key, expected) in [
        (
            "reversed.pem",
            "key.pem",
            "the first certificate is not that of the key; number 2 is\n    hint: reverse the order",
        ),
        ("leaf.pem", "ca.key", "the certificate is not that of the key "),
        ("leaf.pem", "secret.key", "the key has a passphrase, which the server cannot enter\n"),
        ("leaf.pem", "older.key", "openssl pkey -in KEY -out NEW"),
        ("half.pem", "key.pem", "half.pem: it ends in the middle of a section"),
        ("leaf.pem", "half.key", "half.key: it ends in the middle of a section"),
        ("p521.pem", "p521.key", "the key is of the curve P-521, which is not supported\n"),
        ("key.pem", "key.pem", "there is no certificate in it"),
        ("leaf.pem", "leaf.pem", "there is no private key in it"),
    ] {
        let error = all.load(cert, key).unwrap_err().to_string();
        assert!(error.contains(expected), "{cert}, {key}: {error}");
    }
}
