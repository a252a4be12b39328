//! What generated text must be like.

use std::ffi::c_char;

use engine::Constraint;

use crate::arguments::text;
use crate::handles::Handles;
use crate::status::{Failure, akunu_status, guard};

/// What a text must be like. Threads may share it, and so may models.
pub struct akunu_constraint {
    _private: (),
}

pub(crate) static CONSTRAINTS: Handles<Constraint> = Handles::new("constraint");

/// Any JSON object; the source is null.
pub const AKUNU_JSON_OBJECT: u32 = 1;
/// Instances of a JSON Schema.
pub const AKUNU_JSON_SCHEMA: u32 = 2;
/// Matches of a regular expression, from beginning to end.
pub const AKUNU_REGEX: u32 = 3;
/// Sentences of a grammar in llama.cpp's notation, GBNF.
pub const AKUNU_GBNF: u32 = 4;
/// Sentences of a grammar in llguidance's variant of Lark.
pub const AKUNU_LARK: u32 = 5;

/// Makes a constraint of some language: AKUNU_JSON_OBJECT and so on. `*constraint` is to be given to akunu_constraint_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_constraint_create(
    language: u32,
    source: *const c_char,
    constraint: *mut *mut akunu_constraint,
) -> akunu_status {
    // SAFETY: the caller's promise, see `arguments`.
    let source = || unsafe { text(source, "source") };
    let make = || {
        Ok(match language {
            AKUNU_JSON_OBJECT => Constraint::json_object(),
            AKUNU_JSON_SCHEMA => Constraint::json_schema_text(source()?)?,
            AKUNU_REGEX => Constraint::regex(source()?)?,
            AKUNU_GBNF => Constraint::gbnf(source()?)?,
            AKUNU_LARK => Constraint::lark(source()?)?,
            other => return Err(Failure::usage(format_args!("no language has the number {other}"))),
        })
    };
    // SAFETY: as above.
    guard(|| unsafe { CONSTRAINTS.give(constraint, "constraint", make) })
}

/// Frees a constraint; null is fine.
#[unsafe(no_mangle)]
pub extern "C" fn akunu_constraint_free(constraint: *mut akunu_constraint) -> akunu_status {
    guard(|| CONSTRAINTS.remove(constraint))
}
