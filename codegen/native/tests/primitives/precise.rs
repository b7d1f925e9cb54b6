//! Results in f64 against a table that was worked out with 1400 bits: the evaluator is itself off by
//! one or two.
//!
//! A line of the table has a primitive, the bits of its operands and of the result, correctly
//! rounded, and how far that is below the true result, in thousandths of the last place.

use std::collections::BTreeMap;

use mithril_ir::dtype::DType;
use mithril_ir::scalar::{Prim, Scalar};
use mithril_kernels::builder::Builder;
use mithril_kernels::code::V;
use mithril_kernels::scalar::apply;

use crate::machine::Kernel;
use crate::samples::Array;
use crate::ulp;

struct Line {
    args: Vec<f64>,
    result: f64,
    left: f64,
}

fn table() -> BTreeMap<Prim, Vec<Line>> {
    let mut table: BTreeMap<Prim, Vec<Line>> = BTreeMap::new();
    for line in include_str!("f64.txt").lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |word: &&str| f64::from_bits(u64::from_str_radix(word, 16).expect("bits"));
        let prim = Prim::from_name(words[0]).expect("a primitive");
        let (numbers, left) = (&words[1..words.len() - 1], words[words.len() - 1]);
        let mut args: Vec<f64> = numbers.iter().map(number).collect();
        let result = args.pop().expect("a result");
        let left = left.parse::<f64>().expect("thousandths") / 1000.0;
        table.entry(prim).or_default().push(Line { args, result, left });
    }
    table
}

#[test]
fn double_series_are_within_four() {
    for (prim, mut lines) in table() {
        let count = lines.len() / 8 * 8;
        lines.truncate(count);
        let operand = |i: usize| Array::new(DType::F64, lines.iter().map(|l| Scalar::F(l.args[i])));
        let args: Vec<Array> = (0..prim.arity()).map(operand).collect();
        let body = |b: &mut Builder, v: &[V]| apply(b, prim, DType::F64, v, None);
        let dtypes = vec![DType::F64; prim.arity()];
        let inputs: Vec<&[u8]> = args.iter().map(|a| &a.bytes[..]).collect();
        let kernel = Kernel::new(&dtypes, &[(DType::F64, &body)], 8);
        let got = Array { dtype: DType::F64, bytes: kernel.run(&inputs, count).remove(0) };
        let errors = lines.iter().enumerate().map(|(i, line)| {
            let unit = ulp(DType::F64, line.result);
            ((got.get(i).float() - line.result) / unit - line.left).abs()
        });
        let worst = errors.fold(0.0, f64::max);
        println!("{} f64: {worst:.3}", prim.name());
        assert!(worst <= 4.0, "{} is off by {worst}", prim.name());
    }
}
