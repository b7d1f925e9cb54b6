//! Packs constants, and checks that unpacking restores them.

use std::sync::Arc;

use mithril_ir::dtype::DType;
use mithril_ir::tensor::Tensor;
use mithril_kernels::lower::packing::{Packed, Packing};

/// The packing of a row-major matrix with `k` rows and `n` columns.
fn rows(k: i64, n: i64) -> Packing {
    Packing {
        arg: 1,
        dtype: DType::F32,
        offset: 0,
        batch: vec![],
        n: (n, 1),
        k: (k, n),
        strip: 16,
        group: 1,
        unit: 1,
    }
}

/// The packing of a column-major matrix with `k` rows and `n` columns.
fn columns(k: i64, n: i64) -> Packing {
    Packing { n: (n, k), k: (k, 1), ..rows(k, n) }
}

fn ramp(dtype: DType, count: i64) -> Tensor {
    let values: Vec<i64> = (0..count).map(|i| i % 120).collect();
    Tensor::from_i64s(dtype, vec![count as usize], &values)
}

#[test]
fn packed_constants_are_restored() {
    let batched = |packing: Packing, count: i64| {
        let matrix = packing.n.0 * packing.k.0;
        Packing { batch: vec![(2, count * matrix), (count, matrix)], ..packing }
    };
    let mut cases = Vec::new();
    for (k, n) in [(1, 1), (5, 7), (16, 16), (33, 17), (40, 50)] {
        cases.extend([
            rows(k, n),
            columns(k, n),
            batched(rows(k, n), 3),
            batched(columns(k, n), 1),
        ]);
        // Reads the columns in reverse.
        cases.push(Packing { offset: n - 1, n: (n, -1), ..rows(k, n) });
    }
    for case in cases {
        for (dtype, group) in [(DType::F32, 1), (DType::BF16, 2), (DType::I8, 4), (DType::F64, 1)] {
            let case = Packing { dtype, group, unit: group, ..case.clone() };
            let batch: i64 = case.batch.iter().map(|(extent, _)| extent).product();
            let plain = ramp(dtype, batch * case.n.0 * case.k.0);
            let tensor = plain.clone().replaceable();
            let packed = case.pack(&tensor).expect("memory").bytes();
            let layout = case.layout(&tensor, packed.clone()).expect("all elements");
            tensor.replace(Arc::new(layout));
            assert!(tensor.layout::<Packed>().is_some());
            assert_eq!(tensor, plain, "{case:?}");
            // Packing a packed tensor in the same way returns the same memory, even for another
            // argument.
            let again = Packing { arg: 0, ..case.clone() }.pack(&tensor).expect("memory");
            assert_eq!(again.bytes().as_ptr(), packed.as_ptr());
            // Packing it in another way starts from the unpacked elements.
            let other = Packing { strip: 8, ..case.clone() };
            assert_eq!(other.pack(&tensor), other.pack(&plain), "{case:?}");
        }
    }
}

#[test]
fn a_part_does_not_replace_the_tensor() {
    let tensor = ramp(DType::F32, 40).replaceable();
    let parts = [
        rows(5, 4),
        Packing { offset: 20, ..rows(5, 4) },
        // Rows with gaps between them, and repeated rows.
        Packing { k: (5, 8), ..rows(5, 4) },
        Packing { k: (10, 0), ..rows(10, 4) },
    ];
    for part in parts {
        let packed = part.pack(&tensor).expect("memory").bytes();
        assert!(part.layout(&tensor, packed).is_none(), "{part:?}");
    }
}
