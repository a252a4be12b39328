//! Limits on what one rendering may cost.
//!
//! A template is a program from a stranger. Every evaluated node, every item visited and every byte compared
//! costs steps; every byte of text and every list item made costs memory. Both only ever add up, so a rendering
//! is bounded in time and in memory whatever it does with its values.

use std::cell::Cell;

use super::error::{ErrorKind, Result, TemplateError};

/// What one rendering may cost at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Evaluated nodes, items visited, and 64-byte stretches of text searched.
    pub steps: u64,
    /// Bytes of text and of list items made on the way, together.
    pub memory: u64,
    /// Bytes of the rendered prompt.
    pub output: u64,
}

impl Default for Limits {
    /// Room for thousands of messages; about a second and less than 256 MiB for a template that never ends.
    fn default() -> Self {
        Self { steps: 5_000_000, memory: 256 << 20, output: 64 << 20 }
    }
}

/// Nested statements, expressions and macro calls at once. Native stack is used for each.
const MAX_DEPTH: u32 = 256;

/// Bytes of text searched or compared for the price of one step.
const BYTES_PER_STEP: usize = 64;

/// What is left of the limits.
#[derive(Debug)]
pub(super) struct Budget {
    steps: Cell<u64>,
    memory: Cell<u64>,
    depth: Cell<u32>,
    pub(super) limits: Limits,
}

fn over(what: &str) -> Box<TemplateError> {
    TemplateError::new(ErrorKind::Limit, what)
}

impl Budget {
    pub(super) fn new(limits: Limits) -> Self {
        Self { steps: Cell::new(limits.steps), memory: Cell::new(limits.memory), depth: Cell::new(0), limits }
    }

    pub(super) fn step(&self) -> Result<()> {
        self.steps(1)
    }

    pub(super) fn steps(&self, count: usize) -> Result<()> {
        let left = self.steps.get().checked_sub(count as u64);
        self.steps.set(left.ok_or_else(|| {
            over(&format!("more than {} steps: does the template loop without end?", self.limits.steps))
        })?);
        Ok(())
    }

    /// Pays for looking at `bytes` of text.
    pub(super) fn scan(&self, bytes: usize) -> Result<()> {
        self.steps(1 + bytes / BYTES_PER_STEP)
    }

    /// Pays for making `bytes` of text or values, before they are made.
    pub(super) fn make(&self, bytes: usize) -> Result<()> {
        let left = self.memory.get().checked_sub(bytes as u64);
        self.memory.set(
            left.ok_or_else(|| over(&format!("more than {} bytes of text and values", self.limits.memory)))?,
        );
        Ok(())
    }

    /// Goes one level deeper; pair with [`Self::leave`].
    pub(super) fn enter(&self) -> Result<()> {
        let depth = self.depth.get() + 1;
        if depth > MAX_DEPTH {
            return Err(over(&format!("more than {MAX_DEPTH} nested blocks, expressions and macro calls")));
        }
        self.depth.set(depth);
        Ok(())
    }

    pub(super) fn leave(&self) {
        self.depth.set(self.depth.get() - 1);
    }
}
