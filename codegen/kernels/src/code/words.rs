//! The keywords of the text form.

use mithril_ir::scalar::Prim;

use super::{Binary, Callee, Cmp, Fold, Unary};

macro_rules! words {
    ($ty:ident { $($variant:ident: $word:literal),* $(,)? }) => {
        impl $ty {
            /// The keyword in the text form.
            pub fn word(self) -> &'static str {
                match self {
                    $($ty::$variant => $word,)*
                }
            }

            /// The variant with this keyword.
            pub fn from_word(word: &str) -> Option<$ty> {
                [$($ty::$variant),*].into_iter().find(|own| own.word() == word)
            }
        }
    };
}

words!(Unary {
    Neg: "neg",
    Abs: "abs",
    Sqrt: "sqrt",
    Floor: "floor",
    Ceil: "ceil",
    RoundEven: "round_even",
    Not: "not",
});

words!(Binary {
    Add: "add",
    Sub: "sub",
    Mul: "mul",
    Div: "div",
    Rem: "rem",
    Min: "min",
    Max: "max",
    And: "and",
    Or: "or",
    Xor: "xor",
    Shl: "shl",
    Shr: "shr",
});

words!(Cmp { Eq: "eq", Ne: "ne", Lt: "lt", Le: "le", Gt: "gt", Ge: "ge" });

words!(Fold { Add: "add", Mul: "mul", Min: "min", Max: "max", And: "and", Or: "or" });

impl Callee {
    /// The keyword in the text form.
    pub fn word(self) -> &'static str {
        match self {
            Callee::Prim(prim) => prim.name(),
            Callee::Sigmoid => "sigmoid",
            Callee::SortKeyNanLast => "sort_key_nan_last",
            Callee::SortKeyNanFirst => "sort_key_nan_first",
            Callee::FromSortKey => "from_sort_key",
        }
    }

    /// The function with this keyword.
    pub fn from_word(word: &str) -> Option<Callee> {
        let own =
            [Callee::Sigmoid, Callee::SortKeyNanLast, Callee::SortKeyNanFirst, Callee::FromSortKey];
        let own = own.into_iter().find(|own| own.word() == word);
        own.or_else(|| Prim::from_name(word).map(Callee::Prim))
    }
}
