//! An answer with calls of tools, in a syntax that the first byte chooses: read whole and read a character at a time, it
//! says the same.

#![no_main]

use akunu_text::chat::{CallParser, Said, ToolSyntax};
use libfuzzer_sys::fuzz_target;

/// What templates of every family have in them.
const TEMPLATES: [&str; 5] = [
    "",
    "{{ tools }}<tool_call>\n",
    "{{ tools }}{\"name\": function name, \"parameters\": ",
    "{{ tools }}[TOOL_CALLS]",
    "{{ tools }}[TOOL_CALLS][ARGS]",
];

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, text)) = bytes.split_first() else { return };
    let text = String::from_utf8_lossy(text);
    let template = TEMPLATES[first as usize % TEMPLATES.len()];
    let syntax = ToolSyntax::of_template(template).expect("the templates above are known");
    let mut buffer = [0; 4];
    let characters = text.chars().map(|character| character.encode_utf8(&mut buffer).to_owned());
    assert_eq!(read(syntax, [text.as_ref().to_owned()]), read(syntax, characters));
});

/// What an answer says, with neighbouring texts and neighbouring arguments as one.
fn read(syntax: &'static ToolSyntax, pieces: impl IntoIterator<Item = String>) -> Vec<Said> {
    let mut said = Vec::new();
    let mut add = |part: Said| match (said.last_mut(), part) {
        (Some(Said::Text(last)), Said::Text(more)) | (Some(Said::Arguments(last)), Said::Arguments(more)) => {
            last.push_str(&more);
        }
        (_, part) => said.push(part),
    };
    let mut parser = CallParser::new(syntax);
    for piece in pieces {
        parser.push(&piece, &mut add);
    }
    parser.flush(&mut add);
    said
}
