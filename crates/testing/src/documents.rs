//! The code in documents, for tests that compile it.

/// The indented blocks of code in a Markdown text, without the indentation.
pub fn code_blocks(markdown: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut block = String::new();
    for line in markdown.lines() {
        match line.strip_prefix("    ") {
            Some(code) => block += &format!("{code}\n"),
            None if line.trim().is_empty() && !block.is_empty() => block += "\n",
            None => end(&mut block, &mut blocks),
        }
    }
    end(&mut block, &mut blocks);
    blocks
}

fn end(block: &mut String, blocks: &mut Vec<String>) {
    let block = std::mem::take(block);
    if !block.is_empty() {
        blocks.push(format!("{}\n", block.trim_end()));
    }
}

/// Panics unless the code occurs in the source. White space may differ.
#[track_caller]
pub fn assert_contains_code(source: &str, code: &str) {
    let squeeze = |text: &str| text.split_whitespace().collect::<String>();
    assert!(
        squeeze(source).contains(&squeeze(code)),
        "this is in the document, and is not compiled:\n{code}"
    );
}
