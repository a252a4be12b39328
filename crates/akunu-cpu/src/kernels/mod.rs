//! The arithmetic, each kernel written once over [`crate::simd::Simd`].

/// The kernel of every pair of codes and scales that a dtype is packed into: calls the macro `$kernel` with the two types,
/// which the caller has in scope.
macro_rules! for_codes_and_scales {
    ($codes:expr, $scales:expr, $kernel:ident) => {
        match ($codes, $scales) {
            (Codes::B4, Scales::Half { min: false }) => $kernel!(B4, HalfScales<'_, false>),
            (Codes::B4, Scales::Half { min: true }) => $kernel!(B4, HalfScales<'_, true>),
            (Codes::B5, Scales::Half { min: false }) => $kernel!(B5, HalfScales<'_, false>),
            (Codes::B5, Scales::Half { min: true }) => $kernel!(B5, HalfScales<'_, true>),
            (Codes::B8, Scales::Half { .. }) => $kernel!(B8, HalfScales<'_, false>),
            (Codes::Listed(_), Scales::Half { .. }) => $kernel!(Listed, HalfScales<'_, false>),
            (Codes::Listed(_), Scales::Super { .. }) => $kernel!(Listed, SuperScales<'_, false, false>),
            (Codes::Listed(_), Scales::Float { halves: false, .. }) => {
                $kernel!(Listed, FloatScales<'_, false, false>)
            }
            (Codes::Listed(_), Scales::Float { halves: true, .. }) => {
                $kernel!(Listed, FloatScales<'_, true, false>)
            }
            (Codes::B2, Scales::Nibbles) => $kernel!(B2, NibbleScales<'_>),
            (Codes::B3, Scales::Super { .. }) => $kernel!(B3, SuperScales<'_, true, false>),
            (Codes::B4, Scales::Super { .. }) => $kernel!(B4, SuperScales<'_, false, true>),
            (Codes::B5, Scales::Super { .. }) => $kernel!(B5, SuperScales<'_, false, true>),
            (Codes::B6, Scales::Super { .. }) => $kernel!(B6, SuperScales<'_, true, false>),
            (Codes::B2, Scales::Float { min: false, .. }) => $kernel!(B2, FloatScales<'_, false, false>),
            (Codes::B2, Scales::Float { min: true, .. }) => $kernel!(B2, FloatScales<'_, false, true>),
            (Codes::B3, Scales::Float { .. }) => $kernel!(B3, FloatScales<'_, false, true>),
            (Codes::B4, Scales::Float { .. }) => $kernel!(B4, FloatScales<'_, false, true>),
            (Codes::B5, Scales::Float { .. }) => $kernel!(B5, FloatScales<'_, false, true>),
            (Codes::B6, Scales::Float { .. }) => $kernel!(B6, FloatScales<'_, false, true>),
            (Codes::B8, Scales::Float { .. }) => $kernel!(B8, FloatScales<'_, false, true>),
            (Codes::B2 | Codes::B3 | Codes::B6, Scales::Half { .. })
            | (Codes::B2 | Codes::B8, Scales::Super { .. })
            | (_, Scales::Nibbles) => unreachable!("no dtype is packed so"),
        }
    };
}

pub(crate) mod attention;
mod beside;
pub(crate) mod cache;
pub(crate) mod float;
pub(crate) mod int;
pub(crate) mod many;
pub(crate) mod part;
pub(crate) mod product;
pub(crate) mod prompt;
pub(crate) mod rows;
pub(crate) mod scales;
#[cfg(target_arch = "x86_64")]
pub(crate) mod tiles;
#[cfg(not(target_arch = "x86_64"))]
#[path = "tiles/absent.rs"]
pub(crate) mod tiles;
mod two_panels;
