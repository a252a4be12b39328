//! How the panels of products are given out to workers.

use std::ops::{Deref, Range};

use akunu_program::program::Part;

use crate::pack::Matrix;
use crate::simd::LANES;

/// Into how many parts a share is cut, and how many of them its worker does in any case.
const CUTS: usize = 16;
const OWN_CUTS: usize = 12;

/// What a cut may be a multiple of, in panels, the best first: products of one row take four side by side, or two; eight where four
/// would be too few bytes for several rows.
const MULTIPLES: [usize; 3] = [4, 2, 8];

/// Such multiples in a share at least, if it is cut.
const LEAST_MULTIPLES: usize = 8;

/// Bytes of such a multiple at least, in the first part, for a few rows and for several: those have more to do before they begin.
const LEAST_BYTES: [usize; 2] = [16 << 10, 64 << 10];

/// Parts of a step that is shared out as it begins, at most.
const MOST_PARTS: usize = 4;

/// Panels of each part of a step. Without memory of its own: such shares are made anew for each product.
pub(crate) struct Share {
    panels: [Range<usize>; MOST_PARTS],
    parts: usize,
}

impl Deref for Share {
    type Target = [Range<usize>];

    fn deref(&self) -> &[Range<usize>] {
        &self.panels[..self.parts]
    }
}

/// How the panels of a step's parts are given out.
pub(crate) struct Sharing {
    /// Of each part, of which there are some.
    panels: Vec<Range<usize>>,
    /// Bytes of a panel of each part.
    costs: Vec<usize>,
    workers: usize,
    /// Whether the same panels of every part belong together.
    same: bool,
    /// Panels that are given out together.
    unit: usize,
}

impl Sharing {
    pub(crate) fn new(
        matrices: &[&Matrix],
        parts: &[Part],
        workers: usize,
        same: bool,
        unit: usize,
    ) -> Sharing {
        let costs = matrices.iter().map(|m| (m.bytes() / m.panels().max(1)).max(1)).collect();
        Sharing { panels: panels_of(parts), costs, workers, same, unit }
    }

    /// The panels of each part that each worker has if all read about as much: `[worker][part]`.
    pub(crate) fn even(&self) -> Vec<Vec<Range<usize>>> {
        self.even_multiples(self.unit)
    }

    /// The same in multiples of so many.
    pub(crate) fn even_multiples(&self, multiple: usize) -> Vec<Vec<Range<usize>>> {
        let share = |w| self.between([[w, self.workers], [w + 1, self.workers]], multiple);
        (0..self.workers).map(share).collect()
    }

    /// The panels of each part that lie in a part of all work, if there are not too many parts to say so.
    pub(crate) fn share(&self, part: Range<usize>, whole: usize) -> Option<Share> {
        let mut share = Share { panels: [const { 0..0 }; MOST_PARTS], parts: self.panels.len() };
        for (at, panels) in share.panels.get_mut(..self.panels.len())?.iter_mut().enumerate() {
            *panels =
                self.cut(at, [part.start, whole], self.unit)..self.cut(at, [part.end, whole], self.unit);
        }
        Some(share)
    }

    /// All panels in pieces, `[piece][part]`, for a few rows and for several: first one of each worker, then some for whoever has time. None
    /// if there is one worker, or they would be too small.
    pub(crate) fn pieces(&self) -> [Vec<Vec<Range<usize>>>; 2] {
        LEAST_BYTES.map(|least| self.pieces_of(least))
    }

    fn pieces_of(&self, least: usize) -> Vec<Vec<Range<usize>>> {
        if self.workers == 1 {
            return Vec::new();
        }
        let bytes: usize = if self.same { self.costs.iter().sum() } else { self.costs[0] };
        let panels = self.bytes(self.panels.len()) / bytes;
        let enough = |m: &usize| panels / m >= LEAST_MULTIPLES * self.workers && m * bytes >= least;
        let fits = |m: &usize| m.is_multiple_of(self.unit) && enough(m);
        let Some(multiple) = MULTIPLES.into_iter().find(fits) else { return Vec::new() };
        let piece = |worker: usize, cuts: [usize; 2]| {
            self.between(cuts.map(|cut| [CUTS * worker + cut, CUTS * self.workers]), multiple)
        };
        let own = (0..self.workers).map(|w| piece(w, [0, OWN_CUTS]));
        let others = (OWN_CUTS..CUTS).flat_map(|cut| (0..self.workers).map(move |w| (w, cut)));
        let others = others.map(|(w, cut)| piece(w, [cut, cut + 1]));
        own.chain(others.filter(|parts| parts.iter().any(|panels| !panels.is_empty()))).collect()
    }

    /// For each part, its panels between some fractions of all work.
    fn between(&self, fractions: [[usize; 2]; 2], multiple: usize) -> Vec<Range<usize>> {
        let cut = |part, fraction| self.cut(part, fraction, multiple);
        (0..self.panels.len()).map(|part| cut(part, fractions[0])..cut(part, fractions[1])).collect()
    }

    /// The panel of a part at which some fraction of all work is done, or about as much: a multiple of so many from the first on.
    fn cut(&self, part: usize, [numerator, denominator]: [usize; 2], multiple: usize) -> usize {
        let all = self.panels[part].clone();
        if numerator == denominator {
            return all.end;
        }
        let at = if self.same {
            (all.len().div_ceil(multiple) * numerator + denominator / 2) / denominator
        } else {
            let bytes = self.bytes(self.panels.len()) * numerator / denominator;
            let unit = self.costs[part] * multiple;
            (bytes.saturating_sub(self.bytes(part)) + unit / 2) / unit
        };
        all.start + (at * multiple).min(all.len())
    }

    /// Bytes of the first parts.
    fn bytes(&self, parts: usize) -> usize {
        self.panels[..parts].iter().zip(&self.costs).map(|(panels, cost)| panels.len() * cost).sum()
    }
}

/// The panels that hold each part's rows.
fn panels_of(parts: &[Part]) -> Vec<Range<usize>> {
    let panels =
        |part: &Part| part.weight.first / LANES..(part.weight.first + part.weight.rows).div_ceil(LANES);
    parts.iter().map(panels).collect()
}

#[cfg(test)]
mod tests {
    use akunu_program::program::{Slice, ValueId, WeightId};

    use super::*;

    fn part(first: usize, rows: usize) -> Part {
        Part { weight: Slice { weight: WeightId(0), first, rows }, bias: None, out: ValueId(0) }
    }

    #[test]
    fn every_panel_is_given_out_once() {
        let cases = [
            (vec![part(0, 49152)], vec![9792], false),
            (vec![part(8, 5)], vec![64], false),
            (vec![part(0, 2048), part(16, 250), part(7, 256)], vec![18432, 9000, 18432], false),
            (vec![part(0, 1536), part(0, 1536)], vec![5184, 6000], true),
            (vec![part(0, 5632), part(5632, 5632)], vec![18432, 18432], true),
        ];
        for (parts, costs, same) in cases {
            for workers in [1, 2, 3, 16] {
                let sharing =
                    Sharing { panels: panels_of(&parts), costs: costs.clone(), workers, same, unit: 1 };
                let pieces = sharing.pieces();
                assert!(pieces.iter().all(|p| p.is_empty() || p.len() > workers && workers > 1));
                // Shares of workers of very different speed.
                let cut = |worker: usize| worker * worker * 1000 / workers / workers;
                let share = |w| sharing.share(cut(w)..cut(w + 1), 1000).unwrap().to_vec();
                let uneven = (0..workers).map(share).collect();
                for list in [sharing.even(), sharing.even_multiples(4), uneven].iter().chain(&pieces) {
                    if list.is_empty() {
                        continue;
                    }
                    for part in 0..parts.len() {
                        let mut panels: Vec<usize> =
                            list.iter().flat_map(|ranges| ranges[part].clone()).collect();
                        panels.sort_unstable();
                        let all = sharing.panels[part].clone();
                        assert!(panels.into_iter().eq(all), "{costs:?}, {workers} workers");
                    }
                    let together = list.iter().all(|ranges| {
                        let from_first = |part: usize| {
                            let start = sharing.panels[part].start;
                            ranges[part].start - start..ranges[part].end - start
                        };
                        (1..parts.len()).all(|part| from_first(part) == from_first(0))
                    });
                    assert!(together || !same);
                }
            }
        }
    }

    #[test]
    fn units_stay_together() {
        let parts = [part(16, 1536), part(0, 1536)];
        let sharing =
            Sharing { panels: panels_of(&parts), costs: vec![36864; 2], workers: 2, same: true, unit: 2 };
        let shares = [0..3, 3..10, 10..1000].map(|share| sharing.share(share, 1000).unwrap().to_vec());
        let [few, several] = sharing.pieces();
        assert!(few.len() > 2 && several.len() > 2);
        for panels in [sharing.even(), few, several, shares.to_vec()].into_iter().flatten().flatten() {
            // From the first panel of each part on, of which one is odd.
            assert!((panels.end - panels.start).is_multiple_of(2), "{panels:?}");
        }
    }

    /// Those of the tests of bits, and of a model of 1.1B.
    #[test]
    fn large_products_are_cut() {
        let pieces = |rows: &[usize], costs: &[usize], same| {
            let parts: Vec<Part> = rows.iter().map(|rows| part(0, *rows)).collect();
            let sharing =
                Sharing { panels: panels_of(&parts), costs: costs.to_vec(), workers: 2, same, unit: 1 };
            sharing.pieces().map(|pieces| pieces.len())
        };
        assert_eq!(pieces(&[5632, 5632], &[18432, 18432], true), [10, 10]);
        assert!(pieces(&[1100, 1100], &[32768, 4608], false).iter().all(|count| *count > 2));
        assert!(pieces(&[1100, 1100], &[32768, 4608], true).iter().all(|count| *count > 2));
        assert!(pieces(&[2048], &[32768], false).iter().all(|count| *count > 2));
        assert!(pieces(&[512], &[131_072], false).iter().all(|count| *count > 2));
        assert_eq!(pieces(&[576], &[5184], false), [0, 0]);
        // The output matrix of one of 135M.
        assert_eq!(pieces(&[49152], &[9792], false), [10, 10]);
    }
}
