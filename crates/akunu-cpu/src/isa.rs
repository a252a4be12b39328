//! Which instruction set the kernels use, chosen once.

use std::fmt;

use crate::Error;
use crate::simd::{Kernel, portable};

/// The environment variable that forces an instruction set.
pub const ISA_VARIABLE: &str = "AKUNU_ISA";

/// An instruction set the kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// Plain Rust, on any processor.
    Portable,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// x86-64 with AVX-512 F, BW, VL, DQ and VNNI. Where there are GFNI and VBMI too, some kernels use them, to the same bits.
    Avx512,
    /// AVX-512 as above, and AMX tiles of bf16 and of bytes.
    Amx,
    /// ARM64 with the dot product instructions.
    Neon,
}

impl Isa {
    /// All of them, the widest last.
    pub const ALL: [Isa; 5] = [Isa::Portable, Isa::Neon, Isa::Avx2, Isa::Avx512, Isa::Amx];

    /// The name `AKUNU_ISA` takes.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Amx => "amx",
            Isa::Neon => "neon",
        }
    }

    /// Whether this processor has it.
    pub fn is_available(self) -> bool {
        match self {
            Isa::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => {
                Isa::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vnni")
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Amx => Isa::Avx512.is_available() && crate::kernels::tiles::is_available(),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => std::arch::is_aarch64_feature_detected!("dotprod"),
            #[allow(unreachable_patterns)]
            _ => false,
        }
    }

    /// The one `AKUNU_ISA` names, or else the best this processor has.
    pub fn detect() -> Result<Isa, Error> {
        match std::env::var(ISA_VARIABLE) {
            Ok(name) => Isa::named(&name),
            Err(_) => Ok(Isa::best()),
        }
    }

    /// The one of that name, if this processor has it.
    pub fn named(name: &str) -> Result<Isa, Error> {
        let available = || {
            let names: Vec<_> = Isa::ALL.into_iter().filter(|i| i.is_available()).map(Isa::name).collect();
            names.join(", ")
        };
        match Isa::ALL.into_iter().find(|isa| isa.name() == name) {
            Some(isa) if isa.is_available() => Ok(isa),
            _ => Err(Error::Isa { name: name.to_owned(), available: available() }),
        }
    }

    /// Runs a kernel of few rows, whose time goes to taking codes apart: later processors with AVX-512 have instructions for that.
    #[inline]
    pub(crate) fn run_few<K: Kernel>(self, kernel: K) {
        #[cfg(target_arch = "x86_64")]
        if matches!(self, Isa::Avx512 | Isa::Amx) && crate::simd::avx512::has_fields() {
            debug_assert!(self.is_available());
            // SAFETY: as in `run`, and the processor has what was asked for.
            return unsafe { crate::simd::avx512::launch_with_fields(kernel) };
        }
        self.run(kernel);
    }

    fn best() -> Isa {
        Isa::ALL.into_iter().rev().find(|isa| isa.is_available()).unwrap_or(Isa::Portable)
    }

    /// Runs a kernel with this instruction set.
    #[inline]
    pub(crate) fn run<K: Kernel>(self, kernel: K) {
        debug_assert!(self.is_available());
        match self {
            Isa::Portable => portable::launch(kernel),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a backend refuses instruction sets the processor lacks, and nothing else calls kernels.
            Isa::Avx2 => unsafe { crate::simd::avx2::launch(kernel) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Isa::Avx512 | Isa::Amx => unsafe { crate::simd::avx512::launch(kernel) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: as above.
            Isa::Neon => unsafe { crate::simd::neon::launch(kernel) },
            #[allow(unreachable_patterns)]
            _ => unreachable!("{self} does not exist on this kind of processor"),
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_set_the_processor_lacks_is_refused_by_name() {
        let foreign = if cfg!(target_arch = "x86_64") { "neon" } else { "avx2" };
        let error = Isa::named(foreign).unwrap_err().to_string();
        assert!(error.contains(foreign) && error.contains("portable"), "{error}");
        assert!(Isa::named("AVX-9000").is_err());
        assert_eq!(Isa::named("portable").unwrap(), Isa::Portable);
    }
}
