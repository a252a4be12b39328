//! Text in and out of a model: tokenizers, chat templates, streaming detokenisation and stop strings.
