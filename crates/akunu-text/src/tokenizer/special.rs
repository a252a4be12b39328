//! Which tokens a user must not be able to write, and which end a generation.

use super::vocab::{TokenId, TokenKind};

/// Ids with a role of their own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roles {
    pub bos: Option<TokenId>,
    pub eos: Option<TokenId>,
    pub unknown: Option<TokenId>,
    pub padding: Option<TokenId>,
    pub separator: Option<TokenId>,
    pub mask: Option<TokenId>,
    /// Further ends of generation, in any order.
    pub ends: Vec<TokenId>,
}

/// Whether a token may be found in trusted text only.
///
/// Control tokens always. Of the user-defined ones, those that give a conversation its structure: `<tool_call>`,
/// `</think>`, `<|fim_prefix|>`. Runs of spaces and HTML tags, which some vocabularies keep whole, are mere text.
pub(crate) fn is_special(kind: TokenKind, text: &str) -> bool {
    match kind {
        TokenKind::Control | TokenKind::Unknown => true,
        TokenKind::UserDefined => is_bracketed(text) && !is_html_tag(text),
        TokenKind::Normal | TokenKind::Byte | TokenKind::Unused => false,
    }
}

fn is_bracketed(text: &str) -> bool {
    [('<', '>'), ('[', ']')].iter().any(|&(open, close)| text.starts_with(open) && text.ends_with(close))
}

fn is_html_tag(text: &str) -> bool {
    const NAMES: &str = " a b bbox blockquote body br caption code div em footer h1 h2 h3 h4 h5 h6 html i iframe img \
                         li ol p pre s span strong sub sup table tbody td tfoot th thead tr u ul ";
    let name = text.strip_prefix('<').and_then(|text| text.strip_suffix('>'));
    let name = name.map(|name| name.strip_prefix('/').unwrap_or(name));
    name.is_some_and(|name| !name.contains(' ') && NAMES.contains(&format!(" {name} ")))
}

/// Texts of tokens that end a turn or a document, whatever the file says about them.
const END_TEXTS: [&str; 18] = [
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<end_of_turn>",
    "<turn|>",
    "<|end_of_text|>",
    "<|end|>",
    "<eos>",
    "</s>",
    "<EOT>",
    "<|EOT|>",
    "[EOT]",
    "<end_of_utterance>",
    "<｜end▁of▁sentence｜>",
    "<|END_OF_TURN_TOKEN|>",
    "<|return|>",
    "<|call|>",
];

/// Whether a token's text bears on which tokens end a generation.
pub(crate) fn matters_for_ends(text: &str) -> bool {
    text == "<s>" || END_TEXTS.contains(&text)
}

/// All ids that end a generation, sorted: the roles' own and those whose text says so. `kind_of` is asked for texts that
/// [matter](matters_for_ends) only.
pub(crate) fn end_ids(roles: &Roles, kind_of: impl Fn(&str) -> Option<(TokenId, TokenKind)>) -> Vec<TokenId> {
    let mut ids: Vec<TokenId> = roles.eos.into_iter().chain(roles.ends.iter().copied()).collect();
    for text in END_TEXTS {
        let Some((id, kind)) = kind_of(text) else { continue };
        let ends = match text {
            // An HTML tag in vocabularies that do not begin documents with `<s>`.
            "</s>" => kind == TokenKind::Control || matches!(kind_of("<s>"), Some((_, TokenKind::Control))),
            // Where `<|return|>` ends the answer, this ends only one of its messages.
            "<|end|>" => kind_of("<|return|>").is_none(),
            _ => matches!(kind, TokenKind::Control | TokenKind::UserDefined),
        };
        if ends {
            ids.push(id);
        }
    }
    ids.sort_unstable();
    ids.dedup();
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structure_is_special_and_content_is_not() {
        for text in ["<tool_call>", "</think>", "<|fim_prefix|>", "[TOOL_CALLS]", "<｜fim▁hole｜>"] {
            assert!(is_special(TokenKind::UserDefined, text), "{text}");
        }
        for text in ["\n\n", "   ", "<h1>", "</table>", "õ", "<", "]", "<<"] {
            assert!(!is_special(TokenKind::UserDefined, text), "{text}");
        }
        assert!(is_special(TokenKind::Control, "x") && is_special(TokenKind::Unknown, "x"));
    }

    #[test]
    fn end_of_turn_texts_join_the_listed_ids() {
        let roles = Roles { eos: Some(9), ends: vec![3, 9], ..Roles::default() };
        let tokens = [("<|im_end|>", 4, TokenKind::Control), ("</s>", 5, TokenKind::UserDefined)];
        let find = |text: &str| tokens.iter().find(|token| token.0 == text).map(|token| (token.1, token.2));
        assert_eq!(end_ids(&roles, find), [3, 4, 9]);
    }

    #[test]
    fn the_closing_s_ends_where_the_opening_one_begins() {
        let find = |text: &str| match text {
            "<s>" => Some((1, TokenKind::Control)),
            "</s>" => Some((2, TokenKind::UserDefined)),
            _ => None,
        };
        assert_eq!(end_ids(&Roles::default(), find), [2]);
    }

    #[test]
    fn the_end_of_a_message_is_not_the_end_of_the_answer() {
        let find = |text: &str| match text {
            "<|end|>" => Some((1, TokenKind::Control)),
            "<|return|>" => Some((2, TokenKind::Control)),
            _ => None,
        };
        assert_eq!(end_ids(&Roles::default(), find), [2]);
    }
}
