//! From stored blocks to `f32`, one file per family of dtypes.

pub(super) mod float;
