//! The engine people depend on: open a model, look into it, convert it, fetch it.
