//! Many texts at once.

use std::sync::Arc;

use akunu::scheduler::{Event, Limits, Request, Response};
use akunu::{Model, Scheduler, Settings};
use pyo3::prelude::*;

use crate::errors::{OrRaise, raise_about};
use crate::waiting;

/// Continues prompts, as many together as the model has sequences. The first that fails ends the others, unless `all` are wanted.
pub(crate) fn generate(
    py: Python<'_>,
    model: &Model,
    prompts: impl Iterator<Item = PyResult<Vec<u32>>>,
    settings: &Settings,
    all: bool,
) -> PyResult<Vec<PyResult<String>>> {
    let prompts = settle(prompts, all)?;
    let limits = Limits { queue: prompts.len(), ..Limits::default() };
    let scheduler = Arc::new(Scheduler::new(model.clone(), &limits).or_raise()?);
    let (working, settings) = (Arc::clone(&scheduler), settings.clone());
    let work = move || {
        let responses = prompts.into_iter().enumerate().map(|(i, prompt)| {
            let request = Request { settings: settings.clone(), ..Request::new(prompt?) };
            working.submit(request).map_err(|error| about(i, &error))
        });
        let responses = settle(responses, all)?;
        let texts = responses.into_iter().enumerate().map(|(i, response)| read(i, response?));
        settle(texts, all)
    };
    let texts = waiting::run(py, work, || scheduler.abort());
    // Ending the scheduler waits for its thread.
    py.detach(|| drop(scheduler));
    texts?
}

/// All that became of something; or, unless `all` is wanted, the first failure, and nothing after it is looked at.
fn settle<T>(outcomes: impl Iterator<Item = PyResult<T>>, all: bool) -> PyResult<Vec<PyResult<T>>> {
    outcomes.map(|outcome| if all { Ok(outcome) } else { outcome.map(Ok) }).collect()
}

fn read(index: usize, response: Response) -> PyResult<String> {
    let mut text = String::new();
    for event in response {
        match event {
            Event::Piece { piece, .. } => text.push_str(&piece.text),
            Event::Failed(error) => return Err(about(index, &error)),
            Event::Started { .. } | Event::Finished { .. } | Event::Done(_) => {}
        }
    }
    Ok(text)
}

fn about(index: usize, error: &akunu::Error) -> PyErr {
    raise_about(&format!("prompt {index}: "), error)
}
