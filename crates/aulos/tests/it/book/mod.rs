//! Runs the documents: each configuration is checked by `aulos check`, and each command runs in a
//! folder of its page, or its block says in a comment why not.
//!
//! CONTRIBUTING.md, "Documents", describes the comments. Running the blocks as they stand was
//! chosen over commands that a test repeats, because a repeated command stays right when the page
//! is not.

mod blocks;
mod machine;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use blocks::{Block, Treatment, blocks};
use machine::{Fixtures, Outcome, PageMachine};

/// Pages at a time: they wait for servers and players most of the time.
const WORKERS: usize = 3;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The markdown files that users read, relative to `root`, in order.
fn pages(root: &Path) -> Vec<String> {
    let mut found: Vec<String> =
        ["README.md", "CONTRIBUTING.md", "SECURITY.md", "ARCHITECTURE.md"].map(String::from).into();
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

/// What became of the blocks of a page.
#[derive(Debug, Default)]
struct PageReport {
    counts: BTreeMap<&'static str, usize>,
    not_run: Vec<String>,
    problems: Vec<String>,
}

impl PageReport {
    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }
}

/// Checks and runs the blocks of one page. `number` tells its machine from those of other pages.
fn run_page(page: &str, number: usize, fixtures: &Fixtures) -> PageReport {
    let mut report = PageReport::default();
    let text = fs::read_to_string(root().join(page)).unwrap();
    let mut machine = None;
    for block in blocks(&text) {
        if let Err(problem) = run_block(page, &block, &mut report, || {
            machine.get_or_insert_with(|| PageMachine::new(number, fixtures))
        }) {
            let Block { line, content, .. } = &block;
            report.problems.push(format!("{page}:{line}: {problem}\n{content}"));
        }
    }
    if let Some(Err(problem)) = machine.as_ref().map(PageMachine::stop_server) {
        report.problems.push(format!("{page}: its server did not stop as it should: {problem}"));
    }
    report
}

fn run_block<'a, 'f: 'a>(
    page: &str,
    block: &Block,
    report: &mut PageReport,
    machine: impl FnOnce() -> &'a mut PageMachine<'f>,
) -> Result<(), String> {
    let (name, outcome) = match block.treatment()? {
        Treatment::Text => return Ok(()),
        Treatment::NotRun(reason) => {
            missing_path(&reason).map_or(Ok(()), |path| Err(format!("no such file: {path}")))?;
            report.not_run.push(reason);
            return Ok(());
        }
        Treatment::TestedBy(path) => {
            let file_name = Path::new(page).file_name().unwrap().to_str().unwrap();
            let test = fs::read_to_string(root().join(&path)).map_err(|error| error.to_string())?;
            if !test.contains(file_name) {
                return Err(format!("{path} does not name {file_name}"));
            }
            report.count("tested elsewhere");
            return Ok(());
        }
        Treatment::Json => {
            serde_json::from_str::<serde_json::Value>(&block.content)
                .map_err(|error| error.to_string())?;
            ("checked", Outcome::Done)
        }
        Treatment::Config { below } => {
            let is_tutorial = page.starts_with("docs/tutorials/");
            ("checked", machine().check(block, below.as_deref(), is_tutorial)?)
        }
        Treatment::Run => ("run", machine().run(block)?),
    };
    report.count(if outcome == Outcome::Done { name } else { "skipped" });
    Ok(())
}

/// A file of the project that a reason names and that does not exist.
fn missing_path(reason: &str) -> Option<&str> {
    let is_path =
        |word: &&str| ["crates/", "docs/", "scripts/"].iter().any(|at| word.starts_with(at));
    reason.split([' ', ';', ',']).filter(is_path).find(|path| !root().join(path).exists())
}

#[test]
fn the_commands_and_configurations_of_the_documents_work() {
    let fixtures = Fixtures::new();
    let mut pages = pages(&root());
    if let Some(only) = std::env::var_os("AULOS_BOOK_PAGE") {
        pages.retain(|page| page.contains(only.to_str().unwrap()));
    }
    let (next, reports) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some((number, page)) = {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    pages.get(number).map(|page| (number, page))
                } {
                    let report = run_page(page, number, &fixtures);
                    reports.lock().unwrap().insert(page.clone(), report);
                }
            });
        }
    });
    let (mut sum, mut problems) = (PageReport::default(), Vec::new());
    for (page, report) in reports.into_inner().unwrap() {
        let mut words: Vec<String> =
            report.counts.iter().map(|(what, count)| format!("{count} {what}")).collect();
        words.extend(report.not_run.iter().map(|reason| format!("1 not run ({reason})")));
        if !words.is_empty() {
            println!("{page}: {}", words.join(", "));
        }
        for (what, count) in report.counts {
            *sum.counts.entry(what).or_default() += count;
        }
        sum.not_run.extend(report.not_run);
        problems.extend(report.problems);
    }
    println!("sum: {:?}, {} not run", sum.counts, sum.not_run.len());
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
}

/// The judge judged: blocks without a treatment, and wrong ones, are problems.
#[test]
fn a_wrong_block_is_a_problem() {
    let fixtures = Fixtures::new();
    let judge = |page: &str| {
        let mut machine = PageMachine::new(199, &fixtures);
        let mut report = PageReport::default();
        blocks(page)
            .iter()
            .map(|block| run_block("x.md", block, &mut report, || &mut machine))
            .collect::<Result<Vec<()>, String>>()
    };
    for (page, problem) in [
        ("```yaml\na: 1\n```\n", "no test"),
        ("```\na\n```\n", "language"),
        ("<!-- test: none: -->\n```sh\ntrue\n```\n", "reason"),
        ("<!-- test: none: crates/x.rs has it -->\n```sh\ntrue\n```\n", "no such file"),
        ("<!-- test: nothing -->\n```sh\ntrue\n```\n", "unknown"),
        ("<!-- test: by README.md -->\n```yaml\na: 1\n```\n", "does not name"),
        ("```json\n{\n```\n", "EOF"),
        ("```sh\nfalse\ntrue\n```\n", "exit status: 1"),
        ("```sh\nfalse | true\n```\n", "exit status: 1"),
        ("```sh\naulos check no-such-file\n```\n", "exit status: 66"),
        ("```sh\naulos status\n```\n", "exit status: 69"),
        ("<!-- test: first: false -->\n```sh\ntrue\n```\n", "exit status: 1"),
        ("```toml\n[[station]]\nnmae = \"x\"\n```\n", "name"),
        ("<!-- test: below [[station]] -->\n```toml\nsuorces = []\n```\n", "sources"),
        ("```toml\n[[station]]\nsources = []\n", "not closed"),
    ] {
        let found = judge(page).expect_err(page);
        assert!(found.contains(problem), "{page}: {found}");
    }
    judge("```text\nwords\n```\n```sh\naulos --version\n```\n").unwrap();
}
