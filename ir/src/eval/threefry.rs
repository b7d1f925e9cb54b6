//! Random bits: Threefry-2x32 with 20 rounds (Salmon et al., SC 2011), laid out as JAX does with
//! `jax_threefry_partitionable`: element `i` depends only on the key and `i`.

use super::array::{Array, Data};
use crate::dtype::DType;

/// The source of all randomness: passed explicitly, and used once.
pub type Key = [u32; 2];

/// By how many bits the second word is rotated in each round; the list repeats after eight rounds.
const ROTATIONS: [u32; 8] = [13, 15, 26, 6, 17, 29, 16, 24];

/// The block cipher: encrypts a counter with a key.
pub fn block(key: Key, counter: [u32; 2]) -> [u32; 2] {
    let keys = [key[0], key[1], key[0] ^ key[1] ^ 0x1bd1_1bda];
    let mut x = [counter[0].wrapping_add(keys[0]), counter[1].wrapping_add(keys[1])];
    for round in 0..20 {
        x[0] = x[0].wrapping_add(x[1]);
        x[1] = x[1].rotate_left(ROTATIONS[round % 8]) ^ x[0];
        // Every four rounds the key is added again, rotated by one word.
        if round % 4 == 3 {
            let nth = round / 4 + 1;
            x[0] = x[0].wrapping_add(keys[nth % 3]);
            x[1] = x[1].wrapping_add(keys[(nth + 1) % 3]).wrapping_add(nth as u32);
        }
    }
    x
}

fn words(n: u64) -> [u32; 2] {
    [(n >> 32) as u32, n as u32]
}

/// The key of a seed: `jax.random.key(seed)`.
pub fn key(seed: u64) -> Key {
    words(seed)
}

/// A new key from a key and a number: `jax.random.fold_in`.
pub fn fold_in(key: Key, data: u32) -> Key {
    block(key, [0, data])
}

/// `n` new keys: `jax.random.split`.
pub fn split(key: Key, n: usize) -> Vec<Key> {
    (0..n as u64).map(|i| block(key, words(i))).collect()
}

/// Reads a key from an array of shape `[2]`.
///
/// # Errors
/// If the shape or dtype is another.
pub fn key_of(array: &Array) -> Result<Key, String> {
    match (&array.data, array.dtype, &array.shape[..]) {
        (Data::Int(v), DType::U32, [2]) => Ok([v[0] as u32, v[1] as u32]),
        _ => Err(format!("a key is u32 of shape [2], got {} of {:?}", array.dtype, array.shape)),
    }
}

/// Keys as an array of u32 of shape `[n, 2]`.
pub fn key_array(keys: &[Key]) -> Array {
    let data = Data::Int(keys.iter().flatten().map(|&w| w.into()).collect());
    Array { dtype: DType::U32, shape: vec![keys.len(), 2], data }
}

/// `n` random words of `width` bits: 8, 16, 32 or 64.
pub(super) fn random_words(key: Key, n: usize, width: u32) -> impl Iterator<Item = u64> {
    (0..n as u64).map(move |i| {
        let [high, low] = block(key, words(i));
        match width {
            64 => u64::from(high) << 32 | u64::from(low),
            _ => u64::from(high ^ low) & ((1 << width) - 1),
        }
    })
}

/// Random bits as unsigned integers of `width` bits: `jax.random.bits`.
///
/// # Errors
/// If `width` is not 8, 16, 32 or 64.
pub fn random_bits(key: Key, shape: &[usize], width: u32) -> Result<Array, String> {
    let dtype = match width {
        8 => DType::U8,
        16 => DType::U16,
        32 => DType::U32,
        64 => DType::U64,
        _ => return Err(format!("there are no random bits of width {width}")),
    };
    let n = shape.iter().product();
    let data = Data::Int(random_words(key, n, width).map(|w| w as i64).collect());
    Ok(Array { dtype, shape: shape.to_vec(), data })
}
