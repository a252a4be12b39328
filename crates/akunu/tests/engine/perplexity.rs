//! Perplexity by hand and by the library.

use akunu::{Error, Kind, Options, Phase, perplexity};

use crate::tiny::{FAMILIES, load, options, prompt};

#[test]
fn the_second_half_of_every_window_is_scored() {
    for name in FAMILIES {
        let model = load(name, &Options { context: Some(40), outputs: 7, ..options() });
        let tokens: Vec<u32> = prompt(name).into_iter().cycle().take(130).collect();
        let bos = model.tokenizer().unwrap().bos().filter(|_| model.tokenizer().unwrap().adds_bos());
        let mut sequence = model.sequence().unwrap();
        let mut scores = Vec::new();
        for window in tokens.chunks_exact(40) {
            sequence.reset();
            for position in 0..39 {
                let token = if position == 0 { bos.unwrap_or(window[0]) } else { window[position] };
                let logits = sequence.logits(&[token], Phase::Prompt).unwrap();
                let total: f64 = logits.iter().map(|&z| f64::from(z).exp()).sum();
                if position >= 20 {
                    scores.push(total.ln() - f64::from(logits[window[position + 1] as usize]));
                }
            }
        }
        let mut windows = Vec::new();
        let result = perplexity(&model, &tokens, None, |done, of, _| {
            windows.push((done, of));
            true
        });
        let result = result.unwrap();
        let mean = scores.iter().sum::<f64>() / scores.len() as f64;
        let variance = scores.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / scores.len() as f64;
        let error = (variance / (scores.len() - 1) as f64).sqrt() * mean.exp();
        assert_eq!((result.tokens, windows), (57, vec![(1, 3), (2, 3), (3, 3)]));
        assert!((result.value() / mean.exp() - 1.0).abs() < 1e-5, "{} {}", result.value(), mean.exp());
        assert!((result.error() / error - 1.0).abs() < 1e-4, "{} {error}", result.error());
    }
}

#[test]
fn texts_that_are_too_short_are_refused_and_a_break_stops() {
    let model = load("llama", &Options { context: Some(40), ..options() });
    let error = perplexity(&model, &[5; 79], None, |_, _, _| true).unwrap_err();
    assert!(error.kind() == Kind::Usage && error.to_string().contains("79"), "{error}");
    assert!(matches!(perplexity(&model, &[5; 80], None, |_, _, _| false), Err(Error::Stopped)));
    assert_eq!(perplexity(&model, &[5; 200], Some(1), |_, _, _| true).unwrap().tokens, 19);
}
