//! How text is generated, as keyword arguments: one list for every method that generates.

use std::collections::BTreeMap;

use akunu::{Sampling, Settings, Speculate};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::constraint::Constraint;
use crate::errors::usage;

/// Reads keyword arguments. One that nobody knows is refused by name.
pub(crate) fn settings(keywords: Option<&Bound<'_, PyDict>>, base: Settings) -> PyResult<Settings> {
    let mut settings = base;
    let Some(keywords) = keywords else { return Ok(settings) };
    for (key, value) in keywords {
        let key: String = key.extract()?;
        if value.is_none() {
            continue;
        }
        let sampling: &mut Sampling = &mut settings.sampling;
        match key.as_str() {
            "max_tokens" => settings.max_tokens = Some(read(&key, &value)?),
            "temperature" => sampling.temperature = read(&key, &value)?,
            "top_k" => sampling.top_k = read(&key, &value)?,
            "top_p" => sampling.top_p = read(&key, &value)?,
            "min_p" => sampling.min_p = read(&key, &value)?,
            "repeat_penalty" => sampling.repeat_penalty = read(&key, &value)?,
            "frequency_penalty" => sampling.frequency_penalty = read(&key, &value)?,
            "presence_penalty" => sampling.presence_penalty = read(&key, &value)?,
            "repeat_last_n" => sampling.repeat_last_n = read(&key, &value)?,
            "seed" => sampling.seed = read(&key, &value)?,
            "logit_bias" => {
                sampling.logit_bias = read::<BTreeMap<u32, f32>>(&key, &value)?.into_iter().collect();
            }
            "stop" => {
                settings.stop = match value.extract::<String>() {
                    Ok(one) => vec![one],
                    Err(_) => read(&key, &value)?,
                };
            }
            "constraint" => {
                settings.constraint = Some(read::<PyRef<'_, Constraint>>(&key, &value)?.0.clone());
            }
            "speculate" => {
                settings.speculate = if read(&key, &value)? { Speculate::Auto } else { Speculate::Off };
            }
            "context_shift" => settings.context_shift = read(&key, &value)?,
            unknown => return Err(usage(&format!("there is no setting {unknown:?}"))),
        }
    }
    Ok(settings)
}

/// The value of a keyword argument; what it cannot be is named.
fn read<'a, 'py, T: FromPyObject<'a, 'py>>(key: &str, value: &'a Bound<'py, PyAny>) -> PyResult<T> {
    value.extract().map_err(|error: T::Error| {
        let error: PyErr = error.into();
        let message = format!(
            "{key} cannot be {}",
            value.repr().map_or_else(|_| "this".to_owned(), |it| it.to_string())
        );
        match error.is_instance_of::<PyTypeError>(value.py()) {
            true => PyTypeError::new_err(message),
            false => usage(&message),
        }
    })
}
