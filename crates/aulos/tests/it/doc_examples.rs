//! Every configuration in the documents is one that `aulos check` accepts.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{scratch, script};

/// The markdown files below `folder`.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

/// The blocks of a page that are marked as TOML and have a table of a configuration.
fn examples(page: &str) -> Vec<String> {
    let blocks = page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks
        .filter(|block| block.lines().any(|line| line.starts_with('[')))
        .map(str::to_owned)
        .collect()
}

/// Files and programs that examples name, below a folder of the test.
fn prepare(example: &str, folder: &Path) -> String {
    for name in ["alarm", "alarm-mail"] {
        script(&folder.join(name), "exit 0");
    }
    for name in ["push", "phone.token", "prometheus.token", "s3", "dj", "board", "kitchen"] {
        fs::write(folder.join(name), "a secret of 24 characters\n").unwrap();
    }
    let folder = folder.to_str().unwrap();
    let mut text = example.to_owned();
    for original in
        ["/usr/local/bin/", "/etc/aulos/", "/run/secrets/", "/run/credentials/aulos.service/"]
    {
        text = text.replace(original, &format!("{folder}/"));
    }
    let secrets = ["password_env = \"BACKUP\"", "token_env = \"BOARD_TOKEN\""];
    for (secret, key) in secrets.iter().zip(["password", "token"]) {
        text = text.replace(secret, &format!("{key} = \"a secret of 24 characters\""));
    }
    text
}

/// The first configuration of the tutorial runs as it stands: nothing that it names is missing.
#[test]
fn the_first_configuration_of_the_tutorial_needs_nothing_else() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tutorials/getting-started.md");
    let text = examples(&fs::read_to_string(page).unwrap()).remove(0);
    let file = aulos_config::ConfigFile { name: "aulos.toml", text: &text };
    let env = aulos_config::Environment { home: Some(scratch()), ..Default::default() };
    let loaded = aulos_config::load_on_this_machine(Some(file), &[], &env).unwrap();
    assert_eq!(loaded.warnings, Vec::<String>::new());
    assert_eq!(loaded.stations[0].sources.len(), 2, "{text}");
}

#[test]
fn the_configurations_in_the_documents_are_valid() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut all = vec![root.join("README.md")];
    pages(&root.join("docs"), &mut all);
    let folder = scratch();
    let (mut checked, mut wrong) = (0, Vec::new());
    for page in all {
        for example in examples(&fs::read_to_string(&page).unwrap()) {
            // Certificates and S3 depend on the machine and on the build.
            if example.contains("cert.pem") || example.contains("upload =") && !cfg!(feature = "s3")
            {
                continue;
            }
            let env = aulos_config::Environment { home: Some(scratch()), ..Default::default() };
            let text = prepare(&example, &folder);
            let file = aulos_config::ConfigFile { name: "aulos.toml", text: &text };
            if let Err(error) = aulos_config::load(Some(file), &[], &env) {
                wrong.push(format!("{}: {error}\n{example}", page.display()));
            }
            checked += 1;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked >= 17, "{checked} examples were found");
}
