//! Tensors whose elements another layout takes over.

use std::hash::{BuildHasher, BuildHasherDefault};
use std::sync::Arc;

use bytes::Bytes;
use mithril_ir::dtype::DType;
use mithril_ir::tensor::{Layout, Tensor};
use rustc_hash::FxHasher;

/// Elements back to front.
struct Backwards(Vec<u8>);

impl Layout for Backwards {
    fn restore(&self) -> Bytes {
        self.0.iter().rev().copied().collect()
    }
}

fn backwards(tensor: &Tensor) -> Arc<Backwards> {
    Arc::new(Backwards(tensor.bytes().iter().rev().copied().collect()))
}

fn ramp(count: usize) -> Tensor {
    let values: Vec<f64> = (0..count).map(|i| i as f64).collect();
    Tensor::from_f64s(DType::F32, vec![count], &values)
}

fn hash(tensor: &Tensor) -> u64 {
    BuildHasherDefault::<FxHasher>::default().hash_one(tensor)
}

#[test]
fn layouts_replace_the_elements_of_all_clones() {
    for count in [3, 1000] {
        let plain = ramp(count);
        let tensor = ramp(count).replaceable();
        let shared = tensor.bytes();
        let other = tensor.reshape(vec![1, count]).expect("as many");
        tensor.replace(backwards(&tensor));
        // Nobody else has the memory any more.
        assert!(shared.is_unique());
        assert_eq!(other.bytes(), plain.bytes());
        assert_eq!(other.to_f64s(), plain.to_f64s());
        assert_eq!(other.element_f64(2), 2.0);
        assert_eq!(tensor, plain);
        assert_eq!(hash(&tensor), hash(&plain));
        assert_ne!(tensor, ramp(count + 1));
        assert!(!tensor.is_uniform());
        assert_eq!(format!("{tensor:?}"), format!("{plain:?}"));
        assert!(other.layout::<Backwards>().is_some());
    }
}

#[test]
fn kept_elements_are_not_replaced() {
    let tensor = ramp(5).replaceable();
    let kept = tensor.keep();
    tensor.replace(backwards(&tensor));
    assert!(tensor.layout::<Backwards>().is_none());
    assert_eq!(tensor.bytes().as_ptr(), kept.as_ptr());
}

#[test]
fn keep_restores_replaced_elements() {
    let tensor = ramp(5).replaceable();
    tensor.replace(backwards(&tensor));
    let kept = tensor.keep();
    assert_eq!(kept, ramp(5).bytes());
    assert_eq!(tensor.bytes().as_ptr(), kept.as_ptr());
}

#[test]
fn fixed_tensors_are_not_replaced() {
    let tensor = ramp(5);
    tensor.replace(backwards(&tensor));
    assert!(tensor.layout::<Backwards>().is_none());
    let ones = Tensor::from_f64s(DType::F32, vec![400], &[1.0; 400]).replaceable();
    ones.replace(backwards(&ones));
    assert!(ones.is_uniform());
    assert_eq!(ones.repeated(), Some(Tensor::scalar(DType::F32, 1.0)));
}
