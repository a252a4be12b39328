//! The arithmetic, each kernel written once over [`crate::simd::Simd`].

pub(crate) mod attention;
pub(crate) mod cache;
pub(crate) mod float;
pub(crate) mod int;
pub(crate) mod product;
pub(crate) mod rows;
