//! The recipes a whole model can be converted by.

use std::fmt;
use std::str::FromStr;

use akunu_format::DType;

use crate::Error;

macro_rules! recipes {
    ($($variant:ident = $file_type:literal, $base:ident, $doc:literal;)*) => {
        /// What a model is converted to: one dtype for all matrices, or a mix that spends more bits where it helps.
        ///
        /// ```
        /// use akunu::quantize::Recipe;
        /// assert_eq!("q4_k_m".parse::<Recipe>()?, Recipe::Q4_K_M);
        /// assert_eq!("Q4_K".parse::<Recipe>()?, Recipe::Q4_K_M); // the usual short name
        /// assert!("Q4".parse::<Recipe>().is_err());
        /// # Ok::<(), akunu::Error>(())
        /// ```
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Recipe { $(#[doc = $doc] $variant,)* }

        impl Recipe {
            /// Every recipe, from the largest files to the smallest.
            pub const ALL: &'static [Recipe] = &[$(Recipe::$variant,)*];

            /// The name people use.
            pub fn name(self) -> &'static str {
                match self { $(Recipe::$variant => stringify!($variant),)* }
            }

            /// What a file says about itself under `general.file_type`.
            pub fn file_type(self) -> u32 {
                match self { $(Recipe::$variant => $file_type,)* }
            }

            /// What a matrix becomes unless a rule says otherwise.
            pub fn base(self) -> DType {
                match self { $(Recipe::$variant => DType::$base,)* }
            }

            /// What it is, in a few words.
            pub fn description(self) -> &'static str {
                match self { $(Recipe::$variant => $doc.trim_ascii(),)* }
            }
        }
    };
}

recipes! {
    F32    =  0, F32,    " 32 bits: exact for any input.";
    BF16   = 32, BF16,   " 16 bits, the range of F32 with fewer digits.";
    F16    =  1, F16,    " 16 bits, more digits and a smaller range than BF16.";
    Q8_0   =  7, Q8_0,   " 8.5 bits: hardly to be told from the original.";
    Q6_K   = 18, Q6_K,   " 6.6 bits.";
    Q5_1   =  9, Q5_1,   " 6 bits; Q5_K_M is better.";
    Q5_K_M = 17, Q5_K,   " 5.5 bits, some matrices with 6.6.";
    Q5_K_S = 16, Q5_K,   " 5.5 bits.";
    Q5_0   =  8, Q5_0,   " 5.5 bits; Q5_K_S is better.";
    Q4_1   =  3, Q4_1,   " 5 bits; Q4_K_M is better.";
    Q4_K_M = 15, Q4_K,   " 4.5 bits, some matrices with 6.6: the usual choice.";
    Q4_K_S = 14, Q4_K,   " 4.5 bits, a few matrices with 5.5.";
    Q4_0   =  2, Q4_0,   " 4.5 bits; Q4_K_S is better.";
    IQ4_NL = 25, IQ4_NL, " 4.5 bits through a non-linear table.";
    Q3_K_L = 13, Q3_K,   " 3.4 bits, many matrices with 5.5.";
    Q3_K_M = 12, Q3_K,   " 3.4 bits, many matrices with 4.5.";
    Q3_K_S = 11, Q3_K,   " 3.4 bits.";
    Q2_K   = 10, Q2_K,   " 2.6 bits, many matrices with 3.4: visibly worse than the original.";
    Q2_K_S = 21, Q2_K,   " 2.6 bits, a few matrices with 4.5.";
}

/// Short names for the recipe most people mean by them.
const ALIASES: [(&str, Recipe); 3] =
    [("Q5_K", Recipe::Q5_K_M), ("Q4_K", Recipe::Q4_K_M), ("Q3_K", Recipe::Q3_K_M)];

impl FromStr for Recipe {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let named = Recipe::ALL.iter().copied().find(|recipe| recipe.name().eq_ignore_ascii_case(name));
        let short =
            ALIASES.iter().find(|(alias, _)| alias.eq_ignore_ascii_case(name)).map(|(_, recipe)| *recipe);
        named.or(short).ok_or_else(|| {
            let names: Vec<_> = Recipe::ALL.iter().map(|recipe| recipe.name()).collect();
            Error::Usage {
                problem: format!("\"{name}\" is no type to quantise to"),
                hint: format!("choose one of {}", names.join(", ")),
            }
        })
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
