//! The arithmetic, each kernel written once over [`crate::simd::Simd`].

#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;
#[cfg(not(target_arch = "x86_64"))]
#[path = "amx/absent.rs"]
pub(crate) mod amx;
pub(crate) mod attention;
pub(crate) mod cache;
pub(crate) mod float;
pub(crate) mod int;
pub(crate) mod product;
pub(crate) mod rows;
