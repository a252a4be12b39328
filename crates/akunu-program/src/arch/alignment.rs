//! Which heads of a Whisper decoder follow the sound as the text goes on: what OpenAI published for each of its models.

/// A head of a decoder's cross-attention: its layer, and its number there.
pub type AlignmentHead = (usize, usize);

/// What a published model is known by.
struct Known {
    layers: usize,
    hidden: usize,
    vocabulary: usize,
    heads: &'static [AlignmentHead],
}

const fn known(layers: usize, hidden: usize, vocabulary: usize, heads: &'static [AlignmentHead]) -> Known {
    Known { layers, hidden, vocabulary, heads }
}

const ENGLISH: usize = 51_864;
const MULTILINGUAL: usize = 51_865;
const THIRD: usize = 51_866;

const KNOWN: [Known; 11] = [
    known(4, 384, ENGLISH, &[(1, 0), (2, 0), (2, 5), (3, 0), (3, 1), (3, 2), (3, 3), (3, 4)]),
    known(4, 384, MULTILINGUAL, &[(2, 2), (3, 0), (3, 2), (3, 3), (3, 4), (3, 5)]),
    known(6, 512, ENGLISH, &[(3, 3), (4, 7), (5, 1), (5, 5), (5, 7)]),
    known(6, 512, MULTILINGUAL, &[(3, 1), (4, 2), (4, 3), (4, 7), (5, 1), (5, 2), (5, 4), (5, 6)]),
    known(
        12,
        768,
        ENGLISH,
        &[
            (6, 6),
            (7, 0),
            (7, 3),
            (7, 8),
            (8, 2),
            (8, 5),
            (8, 7),
            (9, 0),
            (9, 4),
            (9, 8),
            (9, 10),
            (10, 0),
            (10, 1),
            (10, 2),
            (10, 3),
            (10, 6),
            (10, 11),
            (11, 2),
            (11, 4),
        ],
    ),
    known(
        12,
        768,
        MULTILINGUAL,
        &[(5, 3), (5, 9), (8, 0), (8, 4), (8, 7), (8, 8), (9, 0), (9, 7), (9, 9), (10, 5)],
    ),
    known(
        24,
        1024,
        ENGLISH,
        &[
            (11, 4),
            (14, 1),
            (14, 12),
            (14, 14),
            (15, 4),
            (16, 0),
            (16, 4),
            (16, 9),
            (17, 12),
            (17, 14),
            (18, 7),
            (18, 10),
            (18, 15),
            (20, 0),
            (20, 3),
            (20, 9),
            (20, 14),
            (21, 12),
        ],
    ),
    known(24, 1024, MULTILINGUAL, &[(13, 15), (15, 4), (15, 15), (16, 1), (20, 0), (23, 4)]),
    // The second version's: the first has the same sizes, and nobody uses it any more.
    known(
        32,
        1280,
        MULTILINGUAL,
        &[
            (10, 12),
            (13, 17),
            (16, 11),
            (16, 12),
            (16, 13),
            (17, 15),
            (17, 16),
            (18, 4),
            (18, 11),
            (18, 19),
            (19, 11),
            (21, 2),
            (21, 3),
            (22, 3),
            (22, 9),
            (22, 12),
            (23, 5),
            (23, 7),
            (23, 13),
            (25, 5),
            (26, 1),
            (26, 12),
            (27, 15),
        ],
    ),
    known(
        32,
        1280,
        THIRD,
        &[(7, 0), (10, 17), (12, 18), (13, 12), (16, 1), (17, 14), (19, 11), (21, 4), (24, 1), (25, 6)],
    ),
    // Turbo.
    known(4, 1280, THIRD, &[(2, 4), (2, 11), (3, 3), (3, 6), (3, 11), (3, 14)]),
];

/// The heads of a model of these sizes: the published ones, or all of the upper half of the layers.
pub(super) fn heads(layers: usize, heads: usize, hidden: usize, vocabulary: usize) -> Vec<AlignmentHead> {
    let sizes = (layers, hidden, vocabulary);
    match KNOWN.iter().find(|known| (known.layers, known.hidden, known.vocabulary) == sizes) {
        Some(known) => known.heads.to_vec(),
        None => (layers / 2..layers).flat_map(|layer| (0..heads).map(move |head| (layer, head))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_heads_exist_in_their_models() {
        for Known { layers, hidden, heads, .. } in &KNOWN {
            assert!(heads.iter().all(|&(layer, head)| layer < *layers && head < hidden / 64), "{heads:?}");
            assert!(heads.is_sorted());
        }
    }

    #[test]
    fn other_models_are_aligned_by_the_upper_half_of_their_layers() {
        assert_eq!(heads(3, 2, 16, 51_865), [(1, 0), (1, 1), (2, 0), (2, 1)]);
        assert_eq!(heads(4, 6, 384, 51_865).len(), 6);
    }
}
