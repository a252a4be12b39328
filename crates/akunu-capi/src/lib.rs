//! The C interface of akunu: `libakunu` and its header `include/akunu.h`, which `cbindgen` writes from this crate.
//!
//! One file for each part of the header; `docs/c-api.md` shows how it is used. The rules all functions follow:
//!
//! - **Nothing unwinds over the boundary.** Every body runs in [`status::guard`], which turns errors and panics into an
//!   [`akunu_status`](status::akunu_status) and a message kept for the thread.
//! - **Handles are numbers in a pointer's clothes** ([`handles`]): they are looked up, never followed, and never given out
//!   again. A null, freed or mistaken handle is found out.
//! - **Pointers are read in one place** ([`arguments`]): what the caller promises stands there.
//! - **Options and answers say their size** first, so that both can grow.

#![allow(non_camel_case_types, reason = "types have the names the header gives them")]

mod arguments;
mod batch;
mod constraint;
mod embed;
mod generate;
mod handles;
mod model;
mod options;
mod profile;
mod sequence;
mod speech;
mod status;
mod text;
mod version;
