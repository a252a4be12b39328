//! How well texts answer a question: cross-encoders.

use std::path::Path;
use std::sync::Arc;

use akunu_format::ModelFile;
use akunu_program::arch::Architecture;
use akunu_program::build_rank;
use akunu_program::program::SECOND;
use akunu_text::tokenizer::{AddSpecial, PairEnds, Special, TokenId};
use serde_json::Value;

use super::pooling::{self, Advice, Pooling};
use super::{EmbedOptions, Embedder, Shape, TooLong};
use crate::{Error, Result, text};

/// Whether a model was made to judge pairs of texts: it ends in a single number, and not in one for each of some classes.
pub fn is_ranker(file: &ModelFile) -> Result<bool> {
    let (_, names) = Architecture::of(file).map_err(Error::model(file.path()))?;
    let Some([_, last]) = names.head(file) else { return Ok(false) };
    Ok(file.get_tensor(&format!("{last}.weight")).is_some_and(|weight| weight.rows() == 1))
}

/// A cross-encoder that is ready: it reads a query and a document together and gives one number.
///
/// ```no_run
/// use akunu::embed::{EmbedOptions, Ranker, TooLong};
///
/// let ranker = Ranker::load("ms-marco-MiniLM-L6-v2", &EmbedOptions::default())?;
/// let query = ranker.query("Where is the train?")?;
/// let documents = ["Trains leave from platform nine.", "Bread is baked in the morning."];
/// let pairs = documents.map(|document| ranker.tokens(&query, document, TooLong::Cut));
/// let scores = ranker.scores(&pairs.into_iter().collect::<akunu::Result<Vec<_>>>()?)?;
/// assert!(scores[0] > scores[1]);
/// # Ok::<(), akunu::Error>(())
/// ```
#[derive(Debug)]
pub struct Ranker {
    embedder: Arc<Embedder>,
    ends: PairEnds,
    /// Whether the model's number becomes one from 0 to 1.
    sigmoid: bool,
}

impl Ranker {
    /// Loads the model at `path`. Of the options the pooling has no meaning here.
    pub fn load(path: impl AsRef<Path>, options: &EmbedOptions) -> Result<Ranker> {
        Ranker::from_file(&ModelFile::open(path)?, options)
    }

    /// Loads a model from an open file.
    pub fn from_file(file: &ModelFile, options: &EmbedOptions) -> Result<Ranker> {
        let ModelFile::Checkpoint(checkpoint) = file else {
            return Err(Error::Program(akunu_program::Error::Unsupported {
                what: format!("{}: ranking texts with a file of this kind", file.path().display()),
                supported: "directories with SafeTensors".to_owned(),
            }));
        };
        let options = EmbedOptions { pooling: Some(Pooling::Cls), ..options.clone() };
        let context = pooling::longest(checkpoint)?;
        let advice = Advice { pooling: None, context };
        let embedder = Embedder::open(file, &options, advice, build_rank, true)?;
        let tokenizer = embedder.tokenizer.as_ref().ok_or_else(|| text::no_vocabulary(file.path()))?;
        let mut ends = tokenizer.pair_ends().cloned().ok_or_else(|| Error::Missing {
            what: format!("{}: the tokenizer has no form for two texts", file.path().display()),
            hint: "is this a model that ranks texts?".to_owned(),
        })?;
        ends.marks_second &=
            embedder.pairs && tells_texts_apart(&pooling::read(checkpoint, "tokenizer_config.json")?);
        let least = ends.before.len() + ends.between.len() + ends.after.len() + 2;
        if embedder.context() < least {
            return Err(Error::Usage {
                problem: format!("a context of {} has no room for two texts", embedder.context()),
                hint: format!("ask for at least {least}"),
            });
        }
        let ours = pooling::read(checkpoint, "config_sentence_transformers.json")?;
        let sigmoid = ends_in_sigmoid(&ours, &pooling::read(checkpoint, "config.json")?)?;
        Ok(Ranker { embedder: Arc::new(embedder), ends, sigmoid })
    }

    /// What runs the pairs: each is a text to it, and the [score](Self::score) is made of the one number of its vector,
    /// which is not to be normalised.
    pub fn embedder(&self) -> &Arc<Embedder> {
        &self.embedder
    }

    /// The tokens of a query, for [`tokens`](Self::tokens).
    pub fn query(&self, text: &str) -> Result<Vec<TokenId>> {
        let path = self.embedder.path();
        let tokenizer = self.embedder.tokenizer.as_ref().ok_or_else(|| text::no_vocabulary(path))?;
        Ok(tokenizer.encode(text, Special::Plain, AddSpecial::No))
    }

    /// The tokens of a query and a document, with those the model puts around them; those of the document are marked. Of a pair
    /// that is too long, the longer text loses its end first, and then both.
    pub fn tokens(&self, query: &[TokenId], document: &str, too_long: TooLong) -> Result<Vec<TokenId>> {
        let (mut first, mut second) = (query, self.query(document)?);
        let PairEnds { before, between, after, marks_second } = &self.ends;
        if too_long == TooLong::Cut {
            let around = before.len() + between.len() + after.len();
            let room = self.embedder.context().saturating_sub(around);
            let [one, two] = shares(first.len(), second.len(), room);
            first = &first[..one];
            second.truncate(two);
        }
        let mark = if *marks_second { SECOND } else { 0 };
        let mut tokens = [before.as_slice(), first, between].concat();
        tokens.extend(second.iter().chain(after).map(|token| token | mark));
        self.embedder.check(&tokens)?;
        Ok(tokens)
    }

    /// One number for each pair, given as tokens: more is better.
    pub fn scores(&self, pairs: &[Vec<TokenId>]) -> Result<Vec<f32>> {
        let vectors = self.embedder.embed(pairs, Ranker::SHAPE)?;
        Ok(vectors.iter().map(|vector| self.score(vector)).collect())
    }

    /// The numbers of documents and their scores, the best first; equals stay in their order.
    pub fn order(scores: impl IntoIterator<Item = f32>) -> Vec<(usize, f32)> {
        let mut ranked: Vec<(usize, f32)> = scores.into_iter().enumerate().collect();
        ranked.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        ranked
    }

    /// How the embedder is asked for the numbers.
    pub const SHAPE: Shape = Shape { dimensions: None, normalize: false };

    /// The score of a pair's vector.
    pub fn score(&self, vector: &[f32]) -> f32 {
        let logit = vector.first().copied().unwrap_or(f32::NAN);
        if self.sigmoid { 1.0 / (1.0 + (-logit).exp()) } else { logit }
    }
}

/// How many tokens of each of two texts stay where there is room for so many.
fn shares(first: usize, second: usize, room: usize) -> [usize; 2] {
    if first + second <= room {
        return [first, second];
    }
    // Of an odd number the longer one has the larger half, and of two as long the second.
    let shorter = first.min(second).min(room / 2);
    if first > second { [room - shorter, shorter] } else { [shorter, room - shorter] }
}

/// Whether the makers' own program would tell the model which tokens are of which text.
fn tells_texts_apart(tokenizer: &Value) -> bool {
    let inputs = tokenizer["model_input_names"].as_array();
    inputs.is_none_or(|inputs| inputs.iter().any(|name| name == "token_type_ids"))
}

/// Whether the makers want the model's number between 0 and 1, as `sentence-transformers` does unless they say otherwise. Three
/// places have been in use for that.
fn ends_in_sigmoid(ours: &Value, config: &Value) -> Result<bool> {
    let places = [
        &ours["activation_fn"],
        &config["sentence_transformers"]["activation_fn"],
        &config["sbert_ce_default_activation_function"],
    ];
    let name = places.into_iter().find_map(Value::as_str).unwrap_or("Sigmoid");
    match name.rsplit('.').next() {
        Some("Sigmoid") => Ok(true),
        Some("Identity") => Ok(false),
        _ => Err(Error::Program(akunu_program::Error::Unsupported {
            what: format!("scores by the function {name}"),
            supported: "Sigmoid and Identity".to_owned(),
        })),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_longer_text_is_cut_first() {
        assert_eq!(shares(3, 5, 8), [3, 5]);
        assert_eq!(shares(3, 50, 10), [3, 7]);
        assert_eq!(shares(50, 3, 10), [7, 3]);
        assert_eq!(shares(50, 60, 11), [5, 6]);
        assert_eq!(shares(60, 50, 11), [6, 5]);
        assert_eq!(shares(50, 50, 11), [5, 6]);
        assert_eq!(shares(5, 5, 0), [0, 0]);
    }

    #[test]
    fn the_tokenizer_may_have_the_model_told_nothing_of_two_texts() {
        assert!(tells_texts_apart(&Value::Null));
        assert!(tells_texts_apart(&json!({ "model_input_names": ["input_ids", "token_type_ids"] })));
        assert!(!tells_texts_apart(&json!({ "model_input_names": ["input_ids", "attention_mask"] })));
    }

    #[test]
    fn equals_stay_in_their_order() {
        assert_eq!(Ranker::order([0.5, 2.0, 0.5]), [(1, 2.0), (0, 0.5), (2, 0.5)]);
    }

    #[test]
    fn what_a_score_is_made_by_is_read_from_three_places() {
        let identity = json!("torch.nn.modules.linear.Identity");
        let sigmoid = |ours: Value, config: Value| ends_in_sigmoid(&ours, &config);
        assert!(sigmoid(Value::Null, json!({})).unwrap());
        assert!(!sigmoid(json!({ "activation_fn": identity }), json!({})).unwrap());
        let nested = json!({ "sentence_transformers": { "activation_fn": identity } });
        assert!(!sigmoid(Value::Null, nested).unwrap());
        let old = json!({ "sbert_ce_default_activation_function": identity });
        assert!(!sigmoid(Value::Null, old).unwrap());
        let problem = sigmoid(json!({ "activation_fn": "a.b.Tanh" }), json!({})).unwrap_err().to_string();
        assert!(problem.contains("a.b.Tanh"), "{problem}");
    }
}
