//! Parses types and the values of attributes.

use std::str::FromStr;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::cursor::{Cursor, Span};
use super::print::MAX_EQUAL;
use crate::attr::{Attr, AttrKind};
use crate::diagnostic::{Diagnostic, Result, did_you_mean};
use crate::dim::Symbol;
use crate::dtype::DType;
use crate::op::{AttrDef, Default};
use crate::shape::{Shape, Type};
use crate::tensor::{Tensor, parse_element};

/// The dtype of the caller's floats, in the text of a generic function.
const FLOAT: &str = "float";

/// A cursor with caches by text, so that equal types and shapes are parsed once.
pub(super) struct Reader<'s> {
    pub cursor: Cursor<'s>,
    /// The dtype that the word `float` stands for, if any.
    float: Option<DType>,
    types: FxHashMap<&'s str, Type>,
    shapes: FxHashMap<&'s str, Shape>,
}

impl<'s> Reader<'s> {
    pub fn new(source: &'s str, float: Option<DType>) -> Reader<'s> {
        Reader {
            cursor: Cursor::new(source),
            float,
            types: FxHashMap::default(),
            shapes: FxHashMap::default(),
        }
    }

    /// `tensor<batch x 784 x f32>`.
    pub fn ty(&mut self) -> Result<(Type, Span)> {
        let start = self.cursor.start();
        if !self.cursor.eat("tensor<") {
            return self.cursor.expected("a type such as `tensor<2 x f32>`");
        }
        let inside = self.cursor.start();
        let text = self.cursor.through('>');
        if let Some(ty) = text.and_then(|text| self.types.get(text)) {
            return Ok((ty.clone(), self.cursor.since(start)));
        }
        self.cursor.back_to(inside);
        let mut shape = self.lead(" before the dtype")?;
        let dtype = loop {
            if let Some(dtype) = self.dtype_at_end()? {
                break dtype;
            }
            shape.dims.push(self.cursor.dim()?);
            if !self.cursor.eat_word("x") {
                return self.cursor.expected("`x`, between dims and before the dtype");
            }
        };
        self.cursor.expect(">")?;
        let ty = Type { shape, dtype };
        if let Some(text) = text {
            self.types.insert(text, ty.clone());
        }
        Ok((ty, self.cursor.since(start)))
    }

    /// Starts a shape: parses its rank variable, if there is one; the shape has no dims yet.
    fn lead(&mut self, where_: &str) -> Result<Shape> {
        let mut shape = Shape::scalar();
        if self.cursor.eat("*") {
            let (name, _) = self.cursor.identifier("the name of a rank variable")?;
            shape.lead = Some(Symbol::from(name));
            let more = self.cursor.peek() != Some(']');
            if more && !self.cursor.eat_word("x") {
                return self.cursor.expected(&format!("`x`{where_}"));
            }
        }
        Ok(shape)
    }

    /// The dtype before `>`.
    fn dtype_at_end(&mut self) -> Result<Option<DType>> {
        let start = self.cursor.start();
        let word = match self.cursor.peek() {
            Some(c) if c.is_ascii_alphabetic() || c == '_' => self.cursor.identifier("a dtype")?,
            _ => return Ok(None),
        };
        if self.cursor.peek() != Some('>') {
            self.cursor.back_to(start);
            return Ok(None);
        }
        self.dtype(word).map(Some)
    }

    /// `[*b x 4 x (n + 1)]`.
    fn shape(&mut self) -> Result<Shape> {
        self.cursor.expect("[")?;
        let inside = self.cursor.start();
        let text = self.cursor.through(']');
        if let Some(shape) = text.and_then(|text| self.shapes.get(text)) {
            return Ok(shape.clone());
        }
        self.cursor.back_to(inside);
        let mut shape = self.lead(" or `]`")?;
        while !self.cursor.eat("]") {
            shape.dims.push(self.cursor.dim()?);
            if self.cursor.peek() != Some(']') && !self.cursor.eat_word("x") {
                return self.cursor.expected("`x` or `]`");
            }
        }
        if let Some(text) = text {
            self.shapes.insert(text, shape.clone());
        }
        Ok(shape)
    }

    /// The value of an attribute.
    pub fn attr(&mut self, def: &AttrDef) -> Result<Attr> {
        if matches!(def.default, Default::None) && self.cursor.eat_word("none") {
            return Ok(Attr::None);
        }
        match def.kind {
            AttrKind::Bool if self.cursor.eat_word("true") => Ok(Attr::Bool(true)),
            AttrKind::Bool if self.cursor.eat_word("false") => Ok(Attr::Bool(false)),
            AttrKind::Bool => self.cursor.expected("`true` or `false`"),
            AttrKind::Int => Ok(Attr::Int(self.int()?)),
            AttrKind::Float => {
                let (bits, _) = self.element(DType::F64)?;
                Ok(Attr::Float(f64::from_bits(bits)))
            }
            AttrKind::Str => {
                let (text, _) = self.cursor.string("a string in quotes")?;
                Ok(Attr::Str(text.into()))
            }
            AttrKind::DType => {
                let word = self.cursor.identifier("a dtype")?;
                self.dtype(word).map(Attr::DType)
            }
            AttrKind::Ints => self.ints(),
            AttrKind::Shape => self.shape().map(Attr::from),
            AttrKind::Function => Ok(Attr::Function(self.function_name()?.0)),
            AttrKind::Tensor => self.tensor().map(Attr::from),
        }
    }

    fn int(&mut self) -> Result<i64> {
        let (word, span) = self.cursor.scalar();
        word.parse().or_else(|_| {
            Diagnostic::new("an integer of 64 bits is expected here")
                .got(format!("`{word}`"))
                .span(span)
                .err()
        })
    }

    fn ints(&mut self) -> Result<Attr> {
        self.cursor.expect("[")?;
        let mut values = Vec::new();
        while !self.cursor.eat("]") {
            values.push(self.int()?);
            if !self.cursor.eat(",") && self.cursor.peek() != Some(']') {
                return self.cursor.expected("`,` or `]`");
            }
        }
        Ok(Attr::Ints(values.into()))
    }

    /// `@name`, or `@"any name"`.
    pub fn function_name(&mut self) -> Result<(Arc<str>, Span)> {
        let start = self.cursor.start();
        if !self.cursor.eat("@") {
            return self.cursor.expected("the name of a function, such as `@main`");
        }
        let name = match self.cursor.peek() {
            Some('"') => self.cursor.string("a name")?.0.into(),
            _ => self.cursor.identifier("the name of a function")?.0.into(),
        };
        Ok((name, self.cursor.since(start)))
    }

    fn element(&mut self, dtype: DType) -> Result<(u64, Span)> {
        let (word, span) = self.cursor.scalar();
        match parse_element(dtype, word) {
            Ok(bits) => Ok((bits, span)),
            Err(why) => Diagnostic::new(why).span(span).err(),
        }
    }

    fn tensor(&mut self) -> Result<Tensor> {
        let start = self.cursor.start();
        if !self.cursor.eat("dense<") {
            return self.cursor.expected("a tensor such as `dense<tensor<2 x f32>, [1.0, 2.0]>`");
        }
        let (ty, span) = self.ty()?;
        let Some(shape) = ty.shape.as_fixed() else {
            return Diagnostic::new("the shape of a literal tensor must be constant")
                .got(ty)
                .span(span)
                .err();
        };
        self.cursor.expect(",")?;
        let bytes = match self.cursor.peek() {
            Some('[') => self.elements(ty.dtype)?,
            Some('h') => self.hex()?,
            _ => self.equal_elements(ty.dtype, &shape)?,
        };
        self.cursor.expect(">")?;
        Tensor::from_bytes(ty.dtype, shape, bytes)
            .or_else(|why| Diagnostic::new(why).span(self.cursor.since(start)).err())
    }

    fn elements(&mut self, dtype: DType) -> Result<Vec<u8>> {
        self.cursor.expect("[")?;
        let mut bytes = Vec::new();
        while !self.cursor.eat("]") {
            let (bits, _) = self.element(dtype)?;
            bytes.extend_from_slice(&bits.to_le_bytes()[..dtype.bytes()]);
            if !self.cursor.eat(",") && self.cursor.peek() != Some(']') {
                return self.cursor.expected("`,` or `]`");
            }
        }
        Ok(bytes)
    }

    /// One element that is repeated for all.
    fn equal_elements(&mut self, dtype: DType, shape: &[usize]) -> Result<Vec<u8>> {
        let (bits, span) = self.element(dtype)?;
        let product = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        match product.filter(|&n| n <= MAX_EQUAL) {
            Some(count) => Ok(bits.to_le_bytes()[..dtype.bytes()].repeat(count)),
            None => Diagnostic::new("one element is repeated too many times")
                .expected(format!("at most {MAX_EQUAL} elements"))
                .span(span)
                .err(),
        }
    }

    /// `hex"00ff…"`: the bytes in memory order.
    fn hex(&mut self) -> Result<Vec<u8>> {
        self.cursor.expect("hex\"")?;
        let start = self.cursor.since(0).end;
        let digit = |c: u8| char::from(c).to_digit(16).map(|d| d as u8);
        let bytes = self.cursor.through('"').and_then(|text| {
            let pairs = text.as_bytes().chunks(2);
            pairs
                .map(|pair| match pair {
                    [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
                    _ => None,
                })
                .collect()
        });
        match bytes {
            Some(bytes) => Ok(bytes),
            None => Diagnostic::new(
                "the bytes of a tensor must be pairs of hexadecimal digits in \
                                 quotes",
            )
            .span(start - 1..start)
            .err(),
        }
    }

    fn dtype(&self, (word, span): (&str, Span)) -> Result<DType> {
        if let (FLOAT, Some(float)) = (word, self.float) {
            return Ok(float);
        }
        DType::from_str(word).or_else(|()| {
            let mut error = Diagnostic::new(format!("there is no dtype `{word}`")).span(span);
            error.hint = match word {
                FLOAT => Some("`float` is for functions that are loaded as blocks".to_string()),
                _ => did_you_mean(word, DType::ALL.into_iter().map(DType::name)),
            };
            error.err()
        })
    }
}
