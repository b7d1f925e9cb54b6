//! Parses the text of a dim, with Python's operators and precedence.

use std::fmt;
use std::str::FromStr;

use winnow::ascii::{digit1, multispace0};
use winnow::combinator::{
    alt, cut_err, delimited, not, opt, peek, preceded, separated, terminated,
};
use winnow::error::{ContextError, ErrMode, StrContext, StrContextValue};
use winnow::prelude::*;
use winnow::token::{one_of, take_while};

use super::{Dim, MAX_NESTED, MAX_TERMS, Symbol};

/// The maximum nesting of parentheses, calls and signs, so that recursion fits on a small stack.
const MAX_DEPTH: usize = 64;

/// The text is not a dim.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseDimError {
    text: String,
    /// The byte offset of the error in the text.
    pub offset: usize,
    /// What is allowed at that offset.
    pub expected: String,
}

impl fmt::Display for ParseDimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ParseDimError { text, offset, expected } = self;
        let got = match text[*offset..].chars().next() {
            Some(got) => format!("`{got}`"),
            None => "the end".to_owned(),
        };
        write!(f, "dim `{text}`: expected {expected} at byte {offset}, got {got}")
    }
}

impl std::error::Error for ParseDimError {}

/// Fails if the text is not exactly one dim; surrounding spaces are allowed.
impl FromStr for Dim {
    type Err = ParseDimError;

    fn from_str(text: &str) -> Result<Dim, ParseDimError> {
        let mut whole = delimited(multispace0, parse_dim, multispace0);
        whole.parse(text).map_err(|error| {
            let expected: Vec<_> = error.inner().context().filter_map(expected_text).collect();
            ParseDimError {
                text: text.to_owned(),
                offset: error.offset(),
                expected: if expected.is_empty() {
                    "the end".into()
                } else {
                    expected.join(" or ")
                },
            }
        })
    }
}

fn expected_text(context: &StrContext) -> Option<String> {
    match context {
        StrContext::Expected(value) => Some(value.to_string()),
        _ => None,
    }
}

/// Parses the longest prefix that is a dim, and leaves the space after it.
///
/// Fails with a recoverable error if no dim starts here, and with a fatal one (a cut) if a dim
/// starts but is incomplete.
pub fn parse_dim(input: &mut &str) -> ModalResult<Dim> {
    sum(input, MAX_DEPTH)
}

fn sum(input: &mut &str, depth: usize) -> ModalResult<Dim> {
    let mut total = product(input, depth)?;
    // Not `->`: in `a -> b` an arrow follows the dim.
    let sign = || alt(('+', terminated('-', not('>'))));
    while let Some(sign) = opt(delimited(multispace0, sign(), multispace0)).parse_next(input)? {
        let term = cut_err(|input: &mut &str| product(input, depth)).parse_next(input)?;
        let sum = if sign == '+' { &total + &term } else { &total - &term };
        total = known(sum, &[&total, &term])?;
    }
    Ok(total)
}

fn product(input: &mut &str, depth: usize) -> ModalResult<Dim> {
    let mut total = signed(input, depth)?;
    let operator = || alt(("*", "//", "%"));
    while let Some(operator) =
        opt(delimited(multispace0, operator(), multispace0)).parse_next(input)?
    {
        let factor = cut_err(|input: &mut &str| signed(input, depth)).parse_next(input)?;
        let product = match operator {
            "*" => &total * &factor,
            "//" => total.floor_div(&factor),
            _ => total.modulo(&factor),
        };
        // Division by zero is a valid dim, which is unknown.
        let is_undefined = operator != "*" && factor.as_const() == Some(0);
        total = if is_undefined { product } else { known(product, &[&total, &factor])? };
    }
    Ok(total)
}

fn signed(input: &mut &str, depth: usize) -> ModalResult<Dim> {
    if depth == 0 {
        return Err(ErrMode::Cut(expected("less nesting")));
    }
    // The sign is parsed with the digits, since negating the most negative constant would overflow.
    if peek(opt(preceded('-', digit1))).parse_next(input)?.is_some() {
        return constant(input);
    }
    if opt(terminated('-', multispace0)).parse_next(input)?.is_some() {
        return cut_err(|input: &mut &str| signed(input, depth - 1))
            .parse_next(input)
            .and_then(|dim| known(-&dim, &[&dim]));
    }
    atom(input, depth - 1)
}

fn atom(input: &mut &str, depth: usize) -> ModalResult<Dim> {
    match input.chars().next() {
        Some('?') => '?'.value(Dim::Unknown).parse_next(input),
        Some('(') => {
            let inner = |input: &mut &str| sum(input, depth);
            delimited(('(', multispace0), cut_err(inner), (multispace0, closing)).parse_next(input)
        }
        Some('0'..='9') => constant(input),
        Some('a'..='z' | 'A'..='Z' | '_') => symbol_or_call(input, depth),
        _ => Err(ErrMode::Backtrack(expected("a dim"))),
    }
}

fn constant(input: &mut &str) -> ModalResult<Dim> {
    let digits = (opt('-'), digit1).take().try_map(str::parse::<i64>).map(Dim::Const);
    let what = StrContextValue::Description("an integer of 64 bits");
    cut_err(digits).context(StrContext::Expected(what)).parse_next(input)
}

fn symbol_or_call(input: &mut &str, depth: usize) -> ModalResult<Dim> {
    let first = one_of(('a'..='z', 'A'..='Z', '_'));
    let others = take_while(0.., ('a'..='z', 'A'..='Z', '0'..='9', '_', '.'));
    let name = (first, others).take().parse_next(input)?;
    let fold: fn(&Dim, &Dim) -> Dim = match name {
        "min" if input.starts_with('(') => Dim::min,
        "max" if input.starts_with('(') => Dim::max,
        _ => return Ok(Dim::symbol(Symbol::from(name))),
    };
    let operand = |input: &mut &str| sum(input, depth);
    let comma = delimited(multispace0, ',', multispace0);
    let operands = separated(1.., operand, comma).map(|operands: Vec<Dim>| operands);
    let operands = delimited(('(', multispace0), cut_err(operands), (multispace0, closing))
        .parse_next(input)?;
    let mut operands = operands.into_iter();
    let first = operands.next().unwrap_or(Dim::Unknown);
    operands.try_fold(first, |a, b| known(fold(&a, &b), &[&a, &b]))
}

/// Returns the result of an operation on these operands. Fails if the result is unknown though no
/// operand is, since it then exceeds the limits of dims.
fn known(result: Dim, operands: &[&Dim]) -> ModalResult<Dim> {
    if !result.is_unknown() || operands.iter().any(|dim| dim.is_unknown()) {
        return Ok(result);
    }
    let mut error = ContextError::new();
    error.push(StrContext::Expected(StrContextValue::Description(BOUNDS)));
    Err(ErrMode::Cut(error))
}

/// The limits of dims, for error messages.
const BOUNDS: &str = "a dim of at most 1024 terms in 24 levels and of 64 bits";
const _: () = assert!(MAX_TERMS == 1024 && MAX_NESTED == 24);
// The parentheses in a dim's own text, and two for the type that contains it.
const _: () = assert!(2 * (MAX_NESTED as usize) + 2 < MAX_DEPTH);

fn closing(input: &mut &str) -> ModalResult<char> {
    cut_err(')').context(StrContext::Expected(StrContextValue::CharLiteral(')'))).parse_next(input)
}

fn expected(what: &'static str) -> ContextError {
    let mut error = ContextError::new();
    error.push(StrContext::Expected(StrContextValue::Description(what)));
    error
}
