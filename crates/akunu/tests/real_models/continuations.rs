//! Real models against llama.cpp: the token chosen at every place of 20 continuations of 64 tokens. Run scripts/fetch-test-data first.

use crate::greedy::{MARGIN, MODELS, cases, differences, load};

/// Prompts of each model that are followed: all of the smallest one's, and some of those that take longer. docs/fidelity.md has all.
const FOLLOWED: [usize; 3] = [20, 4, 4];

#[test]
fn the_cpu_backend_chooses_llama_cpps_tokens() {
    for (name, followed) in MODELS.into_iter().zip(FOLLOWED) {
        let cases = cases(name);
        assert_eq!(cases.len(), 20);
        let model = load(&akunu_testing::data(""), name, "cpu");
        let mut decided = 0;
        for case in &cases[..followed] {
            decided += case.margins.iter().filter(|&&margin| margin > MARGIN).count();
            for difference in differences(&model, case).unwrap() {
                assert!(difference.margin <= MARGIN, "{name}: {difference:?}");
            }
        }
        assert!(decided > 50 * followed, "{name}: only {decided} places are decided");
    }
}
