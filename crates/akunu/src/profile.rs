//! What the steps of a model's runs take.

use akunu_program::Tally;

use crate::model::Model;

/// One step of a model, over all runs since timing began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepTime {
    /// What the step does, in the backend's words.
    pub kind: &'static str,
    /// The tensors it reads, as the file calls them.
    pub weights: Vec<String>,
    /// Time and work.
    pub tally: Tally,
}

impl Model {
    /// Times every step of all runs from now on, or no longer, and forgets what was measured before. False where the backend
    /// cannot.
    ///
    /// ```no_run
    /// use akunu::{Model, Options};
    ///
    /// let model = Model::load("model.gguf", &Options::default())?;
    /// model.time_steps(true);
    /// model.sequence()?.prefill(&[1, 2, 3])?;
    /// for step in model.step_times() {
    ///     println!("{} {:?} {:?}", step.kind, step.weights, step.tally.time);
    /// }
    /// # Ok::<(), akunu::Error>(())
    /// ```
    pub fn time_steps(&self, on: bool) -> bool {
        self.engine().executable.set_timing(on)
    }

    /// The steps in the order they run; empty unless they are timed.
    pub fn step_times(&self) -> Vec<StepTime> {
        let timings = self.engine().executable.timings();
        let name = |id: &akunu_program::program::WeightId| self.0.weights[id.0 as usize].clone();
        let timing = |timing: akunu_program::Timing| StepTime {
            kind: timing.kind,
            weights: timing.weights.iter().map(name).collect(),
            tally: timing.tally,
        };
        timings.into_iter().map(timing).collect()
    }
}
