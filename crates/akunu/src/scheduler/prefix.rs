//! What earlier prompts left in the cache, for later ones that begin the same way: a trie of blocks.
//!
//! A node stands for the tokens of one block *after* everything its ancestors stand for, and holds that block in
//! each group of layers. It has [`BLOCK`] tokens, or fewer where a prompt ended: then it has no children. Sequences that begin with
//! a node's path share its blocks. One that goes another way within a block begins with that too, and gets a copy of
//! the block before it writes there. When a group runs out of free blocks, those go that were not used for the longest time and
//! that no sequence holds.
//!
//! A group with a window needs only the last few blocks of a path, so a node may lack its block there: it was behind the
//! window when the node was made, or was given up since.

use std::collections::HashMap;

use akunu_program::BLOCK;

use crate::kv::{Pools, Prefix};

type NodeId = usize;

/// Fewest tokens of a block for which it is worth a copy: reading so many takes several times as long.
const LEAST_PART: usize = 8;

#[derive(Debug)]
struct Node {
    /// Its own tokens; the key under which the parent knows it.
    tokens: Box<[u32]>,
    parent: Option<NodeId>,
    children: HashMap<Box<[u32]>, NodeId>,
    /// Nodes above it.
    depth: usize,
    /// `[group]`.
    blocks: Vec<Option<u32>>,
    /// When a prompt last began with its path; no node was used later than its parent.
    used: u64,
}

/// Prompts whose keys and values are in the cache.
#[derive(Debug)]
pub(crate) struct PrefixCache {
    /// The window of each group.
    windows: Vec<Option<usize>>,
    roots: HashMap<Box<[u32]>, NodeId>,
    nodes: Vec<Option<Node>>,
    vacant: Vec<NodeId>,
    /// Those of all nodes.
    tokens: usize,
    clock: u64,
}

impl PrefixCache {
    /// Nothing yet, for groups with these windows.
    pub(crate) fn new(windows: Vec<Option<usize>>) -> PrefixCache {
        PrefixCache {
            windows,
            roots: HashMap::new(),
            nodes: Vec::new(),
            vacant: Vec::new(),
            tokens: 0,
            clock: 0,
        }
    }

    /// Tokens it knows.
    pub(crate) fn len(&self) -> usize {
        self.tokens
    }

    /// How many of the first of `tokens` are in the cache, and where. The last block may be one of which only the beginning is
    /// meant.
    pub(crate) fn find(&mut self, tokens: &[u32]) -> (usize, Vec<Prefix>) {
        let path = self.walk(tokens);
        self.clock += 1;
        let mut depth = 0;
        // How many blocks up to this node a group has without a gap.
        let mut unbroken = vec![0; self.windows.len()];
        for (above, &id) in path.iter().enumerate() {
            let Some(node) = &self.nodes[id] else { break };
            for (count, block) in unbroken.iter_mut().zip(&node.blocks) {
                *count = if block.is_some() { *count + 1 } else { 0 };
            }
            let end = above + 1;
            let reaches = |(group, count): (usize, &usize)| end - count <= self.first_seen(group, end);
            if unbroken.iter().enumerate().all(reaches) {
                depth = end;
            }
        }
        let mut path = path[..depth].to_vec();
        let (part, node) = self.part(path.last().copied(), &tokens[depth * BLOCK..]);
        if part >= LEAST_PART {
            path.extend(node);
        }
        for &id in &path {
            if let Some(node) = &mut self.nodes[id] {
                node.used = self.clock;
            }
        }
        let prefix = |group: usize| {
            let first = self.first_seen(group, depth);
            let block = |id: &NodeId| self.nodes[*id].as_ref().and_then(|node| node.blocks[group]);
            Prefix { first, blocks: path[first..].iter().filter_map(block).collect() }
        };
        let part = if path.len() > depth { part } else { 0 };
        (depth * BLOCK + part, (0..self.windows.len()).map(prefix).collect())
    }

    /// Of the nodes after `parent` whose blocks are all there, the one that begins with the most of `tokens`, and how many
    /// those are.
    fn part(&self, parent: Option<NodeId>, tokens: &[u32]) -> (usize, Option<NodeId>) {
        let common = |id: NodeId| {
            let node = self.nodes[id].as_ref().filter(|node| node.blocks.iter().all(Option::is_some))?;
            Some((common(&node.tokens, tokens), Some(id)))
        };
        self.children(parent).values().filter_map(|&id| common(id)).max().unwrap_or((0, None))
    }

    /// Remembers a prompt. `blocks` gives the blocks at an index, one for each group that still holds it. The prompt's end need
    /// not be that of a block: nobody may write to its part of that block any more, and only its writer to the rest.
    pub(crate) fn insert(
        &mut self,
        pools: &mut Pools,
        tokens: &[u32],
        blocks: impl Fn(usize) -> Vec<Option<u32>>,
    ) {
        self.clock += 1;
        let mut parent = None;
        for (depth, tokens) in tokens.chunks(BLOCK).enumerate() {
            let known = self.children(parent).get(tokens).copied();
            if tokens.len() < BLOCK
                && known.is_none()
                && !self.is_worth_keeping(parent, tokens, &blocks(depth))
            {
                return;
            }
            let id = known.unwrap_or_else(|| self.add(parent, tokens, depth));
            let Some(node) = &mut self.nodes[id] else { return };
            node.used = self.clock;
            if node.blocks.iter().any(Option::is_none) {
                for (group, (held, block)) in node.blocks.iter_mut().zip(blocks(depth)).enumerate() {
                    if let (None, Some(block)) = (&held, block) {
                        pools.group(group).share(block);
                        *held = Some(block);
                    }
                }
            }
            parent = Some(id);
        }
    }

    /// Whether the end of a prompt brings something new that can be of use.
    fn is_worth_keeping(&self, parent: Option<NodeId>, end: &[u32], blocks: &[Option<u32>]) -> bool {
        let known = self.part(parent, end).0 == end.len();
        end.len() >= LEAST_PART && !known && blocks.iter().all(Option::is_some)
    }

    /// Gives up blocks until `wanted` are free in the group, or nothing is left to give up.
    pub(crate) fn evict(&mut self, pools: &mut Pools, group: usize, wanted: usize) {
        while pools.group(group).free() < wanted {
            let Some(id) = self.oldest(pools, group) else { return };
            if self.windows[group].is_some() {
                let block = self.nodes[id].as_mut().and_then(|node| node.blocks[group].take());
                block.into_iter().for_each(|block| pools.group(group).release(block));
                self.prune(pools, id);
            } else {
                self.remove(pools, id);
            }
        }
    }

    /// Gives up all blocks, and remembers nothing.
    pub(crate) fn clear(&mut self, pools: &mut Pools) {
        for node in self.nodes.drain(..).flatten() {
            for (group, block) in node.blocks.into_iter().enumerate() {
                block.into_iter().for_each(|block| pools.group(group).release(block));
            }
        }
        self.vacant.clear();
        self.roots.clear();
        self.tokens = 0;
    }

    /// The node whose block in this group is missed the least: never one that a sequence uses, and where the group needs
    /// whole paths, one at the end of its path.
    fn oldest(&self, pools: &mut Pools, group: usize) -> Option<NodeId> {
        let windowed = self.windows[group].is_some();
        let nodes = self.nodes.iter().enumerate().filter_map(|(id, node)| Some((id, node.as_ref()?)));
        nodes
            .filter(|(_, node)| windowed || node.children.is_empty())
            .filter(|(_, node)| node.blocks[group].is_some_and(|block| !pools.group(group).is_shared(block)))
            .min_by_key(|(_, node)| (node.used, node.depth))
            .map(|(id, _)| id)
    }

    /// The nodes along `tokens`, as far as they are known.
    fn walk(&self, tokens: &[u32]) -> Vec<NodeId> {
        let mut path: Vec<NodeId> = Vec::new();
        for tokens in tokens.chunks_exact(BLOCK) {
            let Some(&id) = self.children(path.last().copied()).get(tokens) else { break };
            path.push(id);
        }
        path
    }

    fn children(&self, parent: Option<NodeId>) -> &HashMap<Box<[u32]>, NodeId> {
        parent.and_then(|id| self.nodes[id].as_ref()).map_or(&self.roots, |node| &node.children)
    }

    fn children_mut(&mut self, parent: Option<NodeId>) -> &mut HashMap<Box<[u32]>, NodeId> {
        match parent.and_then(|id| self.nodes[id].as_mut()) {
            Some(node) => &mut node.children,
            None => &mut self.roots,
        }
    }

    fn add(&mut self, parent: Option<NodeId>, tokens: &[u32], depth: usize) -> NodeId {
        let node = Node {
            tokens: tokens.into(),
            parent,
            children: HashMap::new(),
            depth,
            blocks: vec![None; self.windows.len()],
            used: self.clock,
        };
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.nodes.push(None);
            self.nodes.len() - 1
        });
        self.nodes[id] = Some(node);
        self.tokens += tokens.len();
        self.children_mut(parent).insert(tokens.into(), id);
        id
    }

    /// Forgets a node without children.
    fn remove(&mut self, pools: &mut Pools, id: NodeId) {
        let Some(node) = self.nodes[id].take() else { return };
        self.children_mut(node.parent).remove(&node.tokens);
        self.vacant.push(id);
        self.tokens -= node.tokens.len();
        for (group, block) in node.blocks.into_iter().enumerate() {
            block.into_iter().for_each(|block| pools.group(group).release(block));
        }
    }

    /// Forgets the end of a path as far as nothing is held there.
    fn prune(&mut self, pools: &mut Pools, end: NodeId) {
        let mut id = Some(end);
        while let Some(end) = id
            && let Some(node) = &self.nodes[end]
            && node.children.is_empty()
            && node.blocks.iter().all(Option::is_none)
        {
            id = node.parent;
            self.remove(pools, end);
        }
    }

    /// Index of the first block that the row after `blocks` blocks sees.
    fn first_seen(&self, group: usize, blocks: usize) -> usize {
        self.windows[group].map_or(0, |window| (blocks * BLOCK + 1).saturating_sub(window) / BLOCK)
    }
}

/// How many tokens both begin with.
fn common(one: &[u32], other: &[u32]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test ends where it fails")]
mod tests {
    use super::*;

    /// `n` blocks of tokens that depend on all of `path`.
    fn prompt(path: &[u32]) -> Vec<u32> {
        path.iter().flat_map(|&step| (0..BLOCK as u32).map(move |i| step * 1000 + i)).collect()
    }

    /// Takes blocks for a prompt as a sequence does, remembers them and lets the sequence go.
    fn remember(cache: &mut PrefixCache, pools: &mut Pools, groups: usize, path: &[u32]) -> Vec<Vec<u32>> {
        let tokens = prompt(path);
        let mut blocks = vec![Vec::new(); groups];
        for (group, blocks) in blocks.iter_mut().enumerate() {
            *blocks = path.iter().map(|_| pools.group(group).take().unwrap()).collect();
        }
        cache.insert(pools, &tokens, |index| blocks.iter().map(|blocks| Some(blocks[index])).collect());
        for (group, blocks) in blocks.iter().enumerate() {
            blocks.iter().for_each(|&block| pools.group(group).release(block));
        }
        blocks
    }

    fn found(cache: &mut PrefixCache, path: &[u32]) -> usize {
        cache.find(&prompt(path)).0 / BLOCK
    }

    #[test]
    fn finds_the_longest_beginning_in_whole_blocks() {
        let (mut pools, mut cache) = (Pools::new(&[16]), PrefixCache::new(vec![None]));
        let first = remember(&mut cache, &mut pools, 1, &[1, 2, 3]);
        remember(&mut cache, &mut pools, 1, &[1, 2, 4]);
        assert_eq!(found(&mut cache, &[1, 2, 3, 5]), 3);
        assert_eq!(found(&mut cache, &[1, 2, 5]), 2);
        assert_eq!(found(&mut cache, &[2, 1]), 0);
        // Of the second block all but the last token is meant, of the third nothing.
        let mut short = prompt(&[1, 2]);
        short.pop();
        assert_eq!(cache.find(&short), (127, vec![Prefix { first: 0, blocks: first[0][..2].to_vec() }]));
        // The second prompt's copies of the first two blocks were not kept.
        assert_eq!((cache.len(), pools.group(0).free()), (4 * BLOCK, 12));
    }

    #[test]
    fn a_prompt_is_found_up_to_the_token_where_another_goes_on() {
        let (mut pools, mut cache) = (Pools::new(&[16]), PrefixCache::new(vec![None]));
        let tokens = &prompt(&[1, 2])[..90];
        let blocks: Vec<u32> = (0..2).map(|_| pools.group(0).take().unwrap()).collect();
        cache.insert(&mut pools, tokens, |index| vec![Some(blocks[index])]);
        assert_eq!(cache.len(), 90);
        let end = vec![Prefix { first: 0, blocks: blocks.clone() }];
        assert_eq!(cache.find(&prompt(&[1, 2])), (90, end.clone()));
        let mut other = prompt(&[1, 2]);
        other[80] = 7;
        assert_eq!(cache.find(&other), (80, end));
        // A few tokens are sooner read than a block is copied.
        other[70] = 7;
        assert_eq!(cache.find(&other), (64, vec![Prefix { first: 0, blocks: blocks[..1].to_vec() }]));
        // What says nothing new, or next to nothing, takes no block; what says more does.
        for (len, kept) in [(80, 90), (67, 90), (100, 126)] {
            cache.insert(&mut pools, &prompt(&[1, 2])[..len], |index| vec![Some(blocks[index])]);
            assert_eq!(cache.len(), kept, "{len}");
        }
    }

    #[test]
    fn gives_up_ends_of_paths_that_were_not_used_the_longest() {
        let (mut pools, mut cache) = (Pools::new(&[6]), PrefixCache::new(vec![None]));
        remember(&mut cache, &mut pools, 1, &[1, 2, 3]);
        remember(&mut cache, &mut pools, 1, &[4, 5]);
        assert_eq!(found(&mut cache, &[1, 2]), 2);
        cache.evict(&mut pools, 0, 2);
        assert_eq!([found(&mut cache, &[1, 2, 3]), found(&mut cache, &[4, 5])], [2, 2]);
        cache.evict(&mut pools, 0, 3);
        assert_eq!([found(&mut cache, &[4, 5]), found(&mut cache, &[1, 2])], [2, 1]);
        cache.evict(&mut pools, 0, 100);
        assert_eq!((cache.len(), pools.group(0).free()), (0, 6));
    }

    #[test]
    fn never_takes_a_block_from_a_sequence() {
        let (mut pools, mut cache) = (Pools::new(&[4]), PrefixCache::new(vec![None]));
        let blocks = remember(&mut cache, &mut pools, 1, &[1, 2]);
        pools.group(0).share(blocks[0][0]);
        cache.evict(&mut pools, 0, 4);
        assert_eq!((found(&mut cache, &[1, 2]), pools.group(0).free()), (1, 3));
    }

    #[test]
    fn a_window_needs_only_its_last_blocks() {
        // The row at position 192 sees positions 93 to 192: blocks 1 and 2.
        let (mut pools, mut cache) = (Pools::new(&[8, 8]), PrefixCache::new(vec![None, Some(100)]));
        let blocks = remember(&mut cache, &mut pools, 2, &[1, 2, 3]);
        cache.evict(&mut pools, 1, 6);
        let (tokens, prefixes) = cache.find(&prompt(&[1, 2, 3]));
        assert_eq!(tokens, 192);
        assert_eq!(prefixes[0], Prefix { first: 0, blocks: blocks[0].clone() });
        assert_eq!(prefixes[1], Prefix { first: 1, blocks: blocks[1][1..].to_vec() });
        // Two blocks alone would end where the window still reaches into the first.
        assert_eq!(found(&mut cache, &[1, 2, 4]), 0);
        // Nothing is lost for good: the next prompt that has the block brings it back.
        remember(&mut cache, &mut pools, 2, &[1, 2]);
        assert_eq!(found(&mut cache, &[1, 2, 4]), 2);
        assert_eq!(cache.len(), 3 * BLOCK);
    }

    #[test]
    fn forgets_paths_of_which_nothing_is_left() {
        let (mut pools, mut cache) = (Pools::new(&[4]), PrefixCache::new(vec![Some(10)]));
        remember(&mut cache, &mut pools, 1, &[1, 2, 3]);
        cache.evict(&mut pools, 0, 3);
        assert_eq!(cache.len(), 3 * BLOCK, "the end of the path is still of use");
        cache.evict(&mut pools, 0, 4);
        assert_eq!(cache.len(), 0);
    }
}
