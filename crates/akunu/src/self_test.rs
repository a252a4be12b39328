//! Every operation of the backends against the reference, on this machine.

use std::thread::available_parallelism;

use akunu_cpu::{Cpu, Isa};
use akunu_program::Backend;
use akunu_program::conformance::{self, Outcome};

use crate::{BACKENDS, Error, Result, backend};

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

/// Checks one backend, or all that this machine has when none is named; the CPU's with every instruction set of this
/// processor. `each` hears of them one by one; it breaks off by returning false.
pub fn self_test(only: Option<&str>, mut each: impl FnMut(SelfTest) -> bool) -> Result<()> {
    let mut check = |backend: &dyn Backend, variant: Option<&'static str>| {
        let outcomes = conformance::run(backend);
        if each(SelfTest { backend: backend.name(), variant, outcomes }) {
            Ok(())
        } else {
            Err(Error::Stopped)
        }
    };
    if let Some(name) = only.filter(|name| *name != "cpu") {
        return check(&*backend(name, None)?, None);
    }
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
        let threads = available_parallelism().map_or(1, std::num::NonZero::get);
        let cpu = Cpu::with_isa(threads, isa).map_err(|error| Error::Usage {
            problem: error.to_string(),
            hint: "this is what `akunu devices` lists".to_owned(),
        })?;
        check(&cpu, Some(isa.name()))?;
    }
    let others = BACKENDS.iter().filter(|name| only.is_none() && **name != "cpu");
    // A build for GPUs runs where there is none.
    others.filter_map(|name| backend(name, None).ok()).try_for_each(|found| check(&*found, None))
}
