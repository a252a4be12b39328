//! What a GGUF file says of its model.

use std::cell::RefCell;
use std::collections::BTreeMap;

use akunu_format::gguf::{Array, FromValue, Gguf, Metadata, Value};
use serde_json::{Map, json};

use super::memory::{LayerCache, MAX_LAYERS, Span};
use super::{
    Rope, RopeScaling, SlidingWindow, SpecialToken, Summary, TemplateSummary, TokenizerSummary,
    periodic_windows,
};
use crate::Result;

/// Lists longer than this are abbreviated in the metadata.
const SHOWN_ELEMENTS: usize = 16;

/// Families that alternate window layers with global ones and do not write down how: every so-many-th layer is
/// global. Where a file has a pattern of its own, that counts.
const WINDOW_PATTERNS: [(&str, u64); 7] = [
    ("cohere2", 4),
    ("exaone4", 4),
    ("gemma2", 2),
    ("gemma3", 6),
    ("gemma3n", 5),
    ("gpt-oss", 2),
    ("olmo2", 4),
];

/// Fills in the summary; returns what each layer keeps in the key-value cache, where that can be told.
pub(super) fn describe(file: &Gguf, summary: &mut Summary) -> Result<Option<Vec<LayerCache>>> {
    let mut facts = Facts { metadata: file.metadata(), prefix: None, problems: RefCell::default() };
    facts.prefix = facts.get("general.architecture");
    summary.format = format!("GGUF v{}", file.version());
    summary.add_files(file.files())?;
    summary.architecture = facts.prefix.map(str::to_owned);
    summary.name = facts.text("general.name");
    summary.license = facts.text("general.license");
    let layers = facts.number("block_count");
    let heads = facts.largest("attention.head_count");
    let embedding_length = facts.number("embedding_length");
    let head_dim = facts
        .number("attention.key_length")
        .or_else(|| Some(embedding_length? / heads.filter(|&heads| heads > 0)?));
    let window = facts.window(layers);
    let shape = &mut summary.shape;
    shape.context_length = facts.number("context_length");
    shape.layers = layers;
    shape.embedding_length = embedding_length;
    shape.feed_forward_length = facts.largest("feed_forward_length");
    shape.heads = heads;
    shape.kv_heads = facts.largest("attention.head_count_kv").or(heads);
    shape.head_dim = head_dim;
    shape.experts = facts.number("expert_count");
    shape.experts_used = facts.number("expert_used_count");
    shape.rope = facts.rope();
    shape.sliding_window = window.as_ref().map(|(size, per_layer)| SlidingWindow {
        size: *size,
        layers: per_layer.iter().filter(|&&is_local| is_local).count() as u64,
    });
    summary.tokenizer = facts.tokenizer();
    summary.shape.vocabulary_size =
        facts.number("vocab_size").or_else(|| Some(summary.tokenizer.as_ref()?.vocabulary_size));
    summary.chat_template = facts.chat_template();
    summary.metadata = facts.metadata.iter().map(|(key, value)| (key.to_owned(), to_json(value))).collect();
    let cache = facts.cache(layers, head_dim, window.as_ref());
    summary.problems.extend(facts.problems.into_inner());
    Ok(cache)
}

/// Metadata of one architecture.
struct Facts<'a> {
    metadata: Metadata<'a>,
    prefix: Option<&'a str>,
    /// What was asked for and has the wrong type, which counts as absent: this describes, it does not load.
    problems: RefCell<Vec<String>>,
}

impl<'a> Facts<'a> {
    fn get<T: FromValue<'a>>(&self, key: &str) -> Option<T> {
        self.metadata.get(key).unwrap_or_else(|error| {
            let problem = error.to_string();
            let mut problems = self.problems.borrow_mut();
            if !problems.contains(&problem) {
                problems.push(problem);
            }
            None
        })
    }

    fn text(&self, key: &str) -> Option<String> {
        self.get::<&str>(key).map(str::to_owned)
    }

    /// A value below the architecture's own prefix.
    fn own<T: FromValue<'a>>(&self, key: &str) -> Option<T> {
        self.get(&format!("{}.{key}", self.prefix?))
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.own(key)
    }

    /// Whether there is one value for each layer.
    fn is_list(&self, key: &str) -> bool {
        let value = self.prefix.and_then(|prefix| self.metadata.value(&format!("{prefix}.{key}")));
        matches!(value, Some(Value::Array(_)))
    }

    /// A number, or a list with one for each layer.
    fn per_layer(&self, key: &str) -> Option<PerLayer> {
        if self.is_list(key) {
            return self.own(key).map(PerLayer::Each);
        }
        self.number(key).map(PerLayer::Same)
    }

    fn largest(&self, key: &str) -> Option<u64> {
        match self.per_layer(key)? {
            PerLayer::Same(value) => Some(value),
            PerLayer::Each(values) => values.into_iter().max(),
        }
    }

    /// The window's size, and for each layer whether it has it.
    fn window(&self, layers: Option<u64>) -> Option<(u64, Vec<bool>)> {
        let size = self.number("attention.sliding_window").filter(|&size| size > 0)?;
        let layers = layers.filter(|&layers| layers <= MAX_LAYERS)?;
        if self.is_list("attention.sliding_window_pattern") {
            return Some((size, self.own("attention.sliding_window_pattern")?));
        }
        let period = self.number("attention.sliding_window_pattern").or_else(|| {
            let known = WINDOW_PATTERNS.iter().find(|(family, _)| Some(*family) == self.prefix);
            known.map(|(_, period)| *period)
        })?;
        Some((size, periodic_windows(layers, period)))
    }

    fn cache(
        &self,
        layers: Option<u64>,
        head_dim: Option<u64>,
        window: Option<&(u64, Vec<bool>)>,
    ) -> Option<Vec<LayerCache>> {
        if self.own::<bool>("attention.causal") == Some(false) {
            return Some(Vec::new());
        }
        let layers = layers.filter(|&layers| layers <= MAX_LAYERS)?;
        let kv_heads =
            self.per_layer("attention.head_count_kv").or_else(|| self.per_layer("attention.head_count"))?;
        let key = head_dim?;
        let value = self.number("attention.value_length").unwrap_or(key);
        (0..layers as usize)
            .map(|layer| {
                let is_local = window.is_some_and(|(_, each)| each.get(layer) == Some(&true));
                Some(LayerCache {
                    elements: kv_heads.of(layer)?.checked_mul(key.checked_add(value)?)?,
                    span: window.filter(|_| is_local).map_or(Span::Context, |(size, _)| Span::Window(*size)),
                })
            })
            .collect()
    }

    fn rope(&self) -> Option<Rope> {
        let rope = Rope {
            base: self.own("rope.freq_base"),
            dimensions: self.number("rope.dimension_count"),
            scaling: self
                .own::<&str>("rope.scaling.type")
                .filter(|kind| *kind != "none")
                .map(str::to_owned)
                // Llama 3 ships its stretched frequencies as a tensor.
                .map(|kind| RopeScaling {
                    kind,
                    factor: self.own("rope.scaling.factor"),
                    original_context: self.number("rope.scaling.original_context_length"),
                }),
        };
        (rope.base.is_some() || rope.dimensions.is_some() || rope.scaling.is_some()).then_some(rope)
    }

    fn tokenizer(&self) -> Option<TokenizerSummary> {
        let model = self.text("tokenizer.ggml.model")?;
        let tokens = self.get::<Array<'_>>("tokenizer.ggml.tokens");
        let text_of = |id: u64| match tokens?.iter().nth(usize::try_from(id).ok()?)? {
            Value::String(text) => Some(text.to_owned()),
            _ => None,
        };
        let special: BTreeMap<_, _> = self
            .metadata
            .iter()
            .filter_map(|(key, _)| {
                let role = key.strip_prefix("tokenizer.ggml.")?.strip_suffix("_token_id")?;
                // Below zero for none.
                let id = u64::try_from(self.get::<i64>(key)?).ok()?;
                Some((role.to_owned(), SpecialToken { id, text: text_of(id) }))
            })
            .collect();
        Some(TokenizerSummary {
            model,
            pre: self.text("tokenizer.ggml.pre"),
            vocabulary_size: tokens.map_or(0, |tokens| tokens.len() as u64),
            special,
        })
    }

    fn chat_template(&self) -> Option<TemplateSummary> {
        let first = self.get::<&str>("tokenizer.chat_template")?;
        let mut names = vec!["default".to_owned()];
        names.extend(
            self.metadata
                .iter()
                .filter_map(|(key, _)| Some(key.strip_prefix("tokenizer.chat_template.")?.to_owned())),
        );
        Some(TemplateSummary::new(names, first))
    }
}

/// A number that may differ between layers.
enum PerLayer {
    Same(u64),
    Each(Vec<u64>),
}

impl PerLayer {
    fn of(&self, layer: usize) -> Option<u64> {
        match self {
            PerLayer::Same(value) => Some(*value),
            PerLayer::Each(values) => values.get(layer).copied(),
        }
    }
}

fn to_json(value: Value<'_>) -> serde_json::Value {
    match value {
        // Through its shortest text: 1e-5 is to stay 1e-5 rather than become 9.999999747378752e-6.
        Value::F32(number) => json!(number.to_string().parse::<f64>().ok()),
        Value::F64(number) => json!(number),
        Value::Bool(truth) => json!(truth),
        Value::String(text) => json!(text),
        Value::Array(array) if array.len() > SHOWN_ELEMENTS => {
            let mut about = Map::new();
            about.insert("elements".to_owned(), json!(array.element_type().name()));
            about.insert("length".to_owned(), json!(array.len()));
            serde_json::Value::Object(about)
        }
        Value::Array(array) => array.iter().map(to_json).collect(),
        // Every other type is an integer, at most 64 bits wide.
        other => other.as_integer().map_or(serde_json::Value::Null, |number| {
            u64::try_from(number).map_or_else(|_| json!(number as i64), |number| json!(number))
        }),
    }
}
