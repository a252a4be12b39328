//! Every operation of every backend against the reference, on this machine.

use std::thread::available_parallelism;

use akunu_cpu::{Cpu, Isa};
use akunu_program::Backend;
use akunu_program::conformance::{self, Outcome};
use akunu_program::reference::Reference;

use crate::{Error, Result};

/// What the checks of one backend gave.
#[derive(Clone, Debug)]
pub struct SelfTest {
    /// The backend's name.
    pub backend: &'static str,
    /// Which of its variants: the instruction set, where there are several.
    pub variant: Option<&'static str>,
    /// One for each case.
    pub outcomes: Vec<Outcome>,
}

impl SelfTest {
    /// Whether all cases were right.
    pub fn is_right(&self) -> bool {
        self.outcomes.iter().all(Outcome::is_right)
    }
}

/// Checks all backends, with every instruction set this processor has. `each` hears of them one by one; it breaks off by
/// returning false.
pub fn self_test(mut each: impl FnMut(SelfTest) -> bool) -> Result<()> {
    let threads = available_parallelism().map_or(1, std::num::NonZero::get);
    let mut check = |backend: &dyn Backend, variant: Option<&'static str>| {
        let outcomes = conformance::run(backend);
        if each(SelfTest { backend: backend.name(), variant, outcomes }) {
            Ok(())
        } else {
            Err(Error::Stopped)
        }
    };
    check(&Reference, None)?;
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
        let cpu = Cpu::with_isa(threads, isa).map_err(|error| Error::Usage {
            problem: error.to_string(),
            hint: "this is what `akunu devices` lists".to_owned(),
        })?;
        check(&cpu, Some(isa.name()))?;
    }
    #[cfg(feature = "cuda")]
    if let Ok(cuda) = crate::backend("cuda", None) {
        check(&*cuda, None)?;
    }
    #[cfg(all(feature = "metal", target_os = "macos"))]
    if let Ok(metal) = crate::backend("metal", None) {
        check(&*metal, None)?;
    }
    #[cfg(feature = "emulator")]
    check(&*crate::backend("emulator", None)?, None)?;
    Ok(())
}
