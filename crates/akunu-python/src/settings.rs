//! How text is generated, as keyword arguments: one list for every method that generates.

use akunu::{Sampling, Settings, Speculate};
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
            "max_tokens" => settings.max_tokens = Some(value.extract()?),
            "temperature" => sampling.temperature = value.extract()?,
            "top_k" => sampling.top_k = value.extract()?,
            "top_p" => sampling.top_p = value.extract()?,
            "min_p" => sampling.min_p = value.extract()?,
            "repeat_penalty" => sampling.repeat_penalty = value.extract()?,
            "frequency_penalty" => sampling.frequency_penalty = value.extract()?,
            "presence_penalty" => sampling.presence_penalty = value.extract()?,
            "repeat_last_n" => sampling.repeat_last_n = value.extract()?,
            "seed" => sampling.seed = value.extract()?,
            "logit_bias" => {
                sampling.logit_bias =
                    value.extract::<std::collections::BTreeMap<u32, f32>>()?.into_iter().collect();
            }
            "stop" => {
                settings.stop = match value.extract::<String>() {
                    Ok(one) => vec![one],
                    Err(_) => value.extract()?,
                };
            }
            "constraint" => settings.constraint = Some(value.cast::<Constraint>()?.get().0.clone()),
            "speculate" => {
                settings.speculate = if value.extract()? { Speculate::Auto } else { Speculate::Off };
            }
            "context_shift" => settings.context_shift = value.extract()?,
            unknown => return Err(usage(&format!("there is no setting {unknown:?}"))),
        }
    }
    Ok(settings)
}
