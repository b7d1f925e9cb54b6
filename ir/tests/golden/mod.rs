//! Reading the golden files; their form is described in `generate.py`.

#![allow(dead_code)] // Every test file includes this module, and none uses all of it.

use mithril_ir::dtype::DType;
use mithril_ir::eval::array::Array;
use mithril_ir::tensor::{Tensor, parse_element};
use std::str::FromStr;

/// `name | field | … = want`.
pub struct Case {
    pub text: String,
    pub name: String,
    pub fields: Vec<String>,
    pub want: String,
}

pub fn cases(text: &str) -> Vec<Case> {
    let case = |line: &str| {
        let (head, want) = line.rsplit_once(" = ").unwrap_or_else(|| panic!("no result: {line}"));
        let mut fields = head.split('|').map(|f| f.trim().to_string());
        let name = fields.next().expect("a name");
        Case { text: line.into(), name, fields: fields.collect(), want: want.trim().into() }
    };
    text.lines().map(str::trim).filter(|l| !l.is_empty()).map(case).collect()
}

impl Case {
    /// Field `i` as an array.
    pub fn array(&self, i: usize) -> Array {
        Array::from(&tensor(&self.fields[i]))
    }

    pub fn get<T: FromStr>(&self, i: usize) -> T {
        let field = &self.fields[i];
        field.parse().unwrap_or_else(|_| panic!("field `{field}` of {}", self.text))
    }

    /// Field `i` as `1,2`, `-` for none.
    pub fn list<T: FromStr>(&self, i: usize) -> Vec<T> {
        let number = |s: &str| s.trim().parse().unwrap_or_else(|_| panic!("{}", self.text));
        match self.fields[i].as_str() {
            "-" => vec![],
            list => list.split(',').map(number).collect(),
        }
    }
}

pub fn dtype(name: &str) -> DType {
    name.parse().unwrap_or_else(|()| panic!("no dtype {name}"))
}

/// The bits of elements in the text of their dtype.
pub fn elements(dtype: DType, text: &str) -> Vec<u64> {
    let element = |t: &str| parse_element(dtype, t).unwrap_or_else(|e| panic!("{e}"));
    text.split_whitespace().map(element).collect()
}

/// `dtype 2x3: elements`.
pub fn tensor(text: &str) -> Tensor {
    let (head, rest) = text.split_once(':').unwrap_or_else(|| panic!("not an array: {text}"));
    let (name, dims) = head.split_once(' ').unwrap_or_else(|| panic!("no shape: {text}"));
    let dtype = dtype(name);
    let dim = |d: &str| d.parse().unwrap_or_else(|_| panic!("shape {dims}"));
    let shape = if dims == "-" { vec![] } else { dims.split('x').map(dim).collect() };
    let bytes: Vec<u8> = elements(dtype, rest)
        .iter()
        .flat_map(|bits| bits.to_le_bytes()[..dtype.bytes()].to_vec())
        .collect();
    Tensor::from_bytes(dtype, shape, bytes).unwrap_or_else(|e| panic!("{e}: {text}"))
}
