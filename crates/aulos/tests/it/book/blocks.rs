//! The fenced blocks of a markdown page, and what the comment before each of them asks for.

/// A fenced block.
#[derive(Debug)]
pub(super) struct Block {
    /// The line of its fence, from 1.
    pub(super) line: usize,
    language: String,
    /// Its lines, without the indentation of the fence.
    pub(super) content: String,
    /// The lines of the comment `<!-- test: ... -->` before it.
    directives: Vec<String>,
    closed: bool,
}

/// How a block is tested.
#[derive(Debug)]
pub(super) enum Treatment {
    /// It is prose.
    Text,
    /// It is a JSON value.
    Json,
    /// It is a configuration, or keys below the given table header.
    Config { below: Option<String> },
    /// The shell runs it.
    Run,
    /// The test in this file runs it.
    TestedBy(String),
    /// It cannot run, for this reason.
    NotRun(String),
}

impl Block {
    /// What is to be done with the block.
    pub(super) fn treatment(&self) -> Result<Treatment, String> {
        if !self.closed {
            return Err("the block is not closed".to_owned());
        }
        let mut below = None;
        for directive in &self.directives {
            if let Some(reason) = directive.strip_prefix("none:") {
                let reason = reason.trim().to_owned();
                if reason.is_empty() {
                    return Err("`test: none:` needs a reason".to_owned());
                }
                return Ok(Treatment::NotRun(reason));
            } else if let Some(path) = directive.strip_prefix("by ") {
                return Ok(Treatment::TestedBy(path.trim().to_owned()));
            } else if let Some(header) = directive.strip_prefix("below ") {
                below = Some(header.to_owned());
            } else if !directive.starts_with("first: ") {
                return Err(format!("unknown directive `{directive}`"));
            }
        }
        match self.language.as_str() {
            "text" => Ok(Treatment::Text),
            "json" => Ok(Treatment::Json),
            "toml" => Ok(Treatment::Config { below }),
            "sh" => Ok(Treatment::Run),
            "" => Err("the block has no language; prose is `text`".to_owned()),
            language => Err(format!("no test of `{language}` and no comment `<!-- test: ... -->`")),
        }
    }

    /// The commands that run before it.
    pub(super) fn first(&self) -> impl Iterator<Item = &str> {
        self.directives.iter().filter_map(|directive| directive.strip_prefix("first: "))
    }
}

/// The fenced blocks of a page. A comment belongs to the block after it if only blank lines are
/// between them.
pub(super) fn blocks(page: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut directives = Vec::new();
    let (mut in_comment, mut indentation) = (false, 0);
    for (line, text) in (1..).zip(page.lines()) {
        let trimmed = text.trim();
        if let Some(block) = found.last_mut().filter(|block| !block.closed) {
            if trimmed == "```" {
                block.closed = true;
            } else {
                let spaces = text.len() - text.trim_start().len();
                block.content += text.get(indentation.min(spaces)..).unwrap_or_default();
                block.content.push('\n');
            }
        } else if in_comment || trimmed.starts_with("<!-- test:") {
            let inside = trimmed.trim_start_matches("<!-- test:").trim_end_matches("-->").trim();
            if !inside.is_empty() {
                directives.push(inside.to_owned());
            }
            in_comment = !trimmed.ends_with("-->");
        } else if let Some(language) = trimmed.strip_prefix("```") {
            indentation = text.len() - text.trim_start().len();
            found.push(Block {
                line,
                language: language.to_owned(),
                content: String::new(),
                directives: std::mem::take(&mut directives),
                closed: false,
            });
        } else if !trimmed.is_empty() {
            directives.clear();
        }
    }
    found
}

#[test]
fn a_comment_belongs_to_the_next_block() {
    let page = "<!-- test: first: a -->\nwords\n```sh\nb\n```\n  <!-- test: below [x]\n  first: c\n  -->\n\n  ```toml\n  d\n    e\n  ```\n";
    let found = blocks(page);
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].line, found[0].first().count()), (3, 0));
    assert_eq!(found[1].content, "d\n  e\n");
    assert_eq!(found[1].first().collect::<Vec<_>>(), ["c"]);
    assert!(matches!(found[1].treatment(), Ok(Treatment::Config { below: Some(_) })));
}
