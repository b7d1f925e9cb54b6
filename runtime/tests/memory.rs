//! Blocks and the pool they return to. One test: the pool is the process's.

use mithril_runtime::align::ALIGN;
use mithril_runtime::memory::{Block, KEPT_BYTES, OutOfMemory, kept_bytes};

#[test]
fn freed_blocks_are_reused() {
    for bytes in [0, 1, 63, 64, 65, 80, 81, 4096, 100_000, (2 << 20) - 1, 2 << 20, 5_000_001] {
        let mut block = Block::new(bytes).expect("memory");
        assert_eq!((block.len(), block.as_ptr().addr() % ALIGN), (bytes, 0));
        block.as_mut_slice().fill(7);
        let (address, before) = (block.as_ptr(), kept_bytes());
        drop(block);
        assert_eq!(kept_bytes() > before, bytes > 0);
        let again = Block::new(bytes).expect("memory");
        assert_eq!((again.as_ptr(), kept_bytes()), (address, before));
        assert!(again.as_slice().iter().all(|b| *b == 7), "it comes as it was left");
    }
    assert_eq!(Block::copy_of(b"abc").expect("memory").as_slice(), b"abc");
    assert!(Block::new(0).expect("nothing").is_empty());
    let large = Block::new(64 << 20).expect("memory");
    assert_eq!(large.as_ptr().addr() % (2 << 20), 0, "huge pages");

    // Of sizes that grow, no more is kept than was in use at one time: two blocks, and `large`.
    let mut last = Block::new(1 << 20).expect("memory");
    for bytes in (1..=48).map(|n| n << 20) {
        last = [Block::new(bytes).expect("memory"), last].into_iter().next().expect("the new one");
    }
    drop(last);
    let used = (64 + 2 * 48) << 20;
    assert!(kept_bytes() <= used + (used >> 3), "{}", kept_bytes());

    let error = Block::new(usize::MAX).err();
    assert_eq!(error, Some(OutOfMemory { bytes: usize::MAX }));
    assert!(Block::new(1 << 59).is_err());

    // None of these is ever touched, so none takes memory. The oldest go first.
    let blocks: Vec<_> = (0..40).map(|_| Block::new(100 << 20).expect("memory")).collect();
    drop(blocks);
    assert!(kept_bytes() <= KEPT_BYTES);
    assert!(kept_bytes() > KEPT_BYTES / 2);
}
