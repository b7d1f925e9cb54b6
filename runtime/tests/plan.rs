//! The arena: what lives at one time does not overlap, and little is wasted.

use mithril_runtime::plan::{Plan, Request, lifetimes};
use mithril_runtime::program::{Buffer, Launch, Loop, Place, Program};
use mithril_runtime::size::Size;
use proptest::prelude::*;

fn rounded(request: &Request) -> usize {
    request.bytes.next_multiple_of(64)
}

/// The most bytes that live at one time: no arena is smaller.
fn bound(requests: &[Request]) -> usize {
    let end = requests.iter().map(|r| r.last + 1).max().unwrap_or(0);
    let live = |at: usize| requests.iter().filter(move |r| r.first <= at && at <= r.last);
    (0..end).map(|at| live(at).map(rounded).sum()).max().unwrap_or(0)
}

fn check(requests: &[Request]) -> Plan {
    let plan = Plan::of(requests).expect("a plan");
    for (i, (a, at)) in requests.iter().zip(&plan.offsets).enumerate() {
        assert!(at % 64 == 0 && at + rounded(a) <= plan.bytes, "{requests:?} {plan:?}");
        for (b, other) in requests.iter().zip(&plan.offsets).take(i) {
            let together = a.first <= b.last && b.first <= a.last && a.bytes > 0 && b.bytes > 0;
            let apart = at + a.bytes <= *other || other + b.bytes <= *at;
            assert!(!together || apart, "{a:?} and {b:?} overlap in {plan:?}");
        }
    }
    assert!(plan.bytes >= bound(requests));
    plan
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    let one = (0usize..5000, 0usize..30, 0usize..8).prop_map(|(bytes, first, length)| Request {
        bytes,
        first,
        last: first + length,
    });
    prop::collection::vec(one, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn live_temporaries_do_not_overlap(requests in requests()) {
        let plan = check(&requests);
        prop_assert!(plan.bytes <= 2 * bound(&requests) + 64);
    }
}

/// Each value is read by the next launch, now and then by later ones. The same chains each time: a
/// heuristic has its bad luck.
#[test]
fn chains_waste_little() {
    let mut state = 1u64;
    let mut below = |limit: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % limit
    };
    let (mut waste, mut chains) = (0.0, 0.0);
    for _ in 0..2000 {
        let (length, skip) = (2 + below(58) as usize, 2 + below(7) as usize);
        let request = |first: usize| {
            let last = first + if first.is_multiple_of(skip) { 3 } else { 1 };
            Request { bytes: 1 + below(1 << 20) as usize, first, last }
        };
        let requests: Vec<_> = (0..length).map(request).collect();
        let ratio = check(&requests).bytes as f64 / bound(&requests) as f64;
        assert!(ratio <= 1.5, "{ratio}");
        (waste, chains) = (waste + ratio - 1.0, chains + 1.0);
    }
    assert!(waste / chains <= 0.01, "{}", waste / chains);
}

#[test]
fn repeated_layers_reuse_memory() {
    // The shape of a transformer: a residual stream, and in each layer a few wide values.
    let mut requests = Vec::new();
    for layer in 0..12 {
        let at = layer * 6;
        let value = |bytes, first: usize, last: usize| Request {
            bytes,
            first: at + first,
            last: at + last,
        };
        requests.extend([
            value(768 * 4, 0, 5),
            value(3 * 768 * 4, 1, 2),
            value(768 * 4, 2, 3),
            value(768 * 4, 3, 5),
            value(3072 * 4, 4, 5),
            value(768 * 4, 5, 6),
        ]);
    }
    assert!(check(&requests).bytes as f64 <= 1.05 * bound(&requests) as f64);
}

#[test]
fn overflowing_sizes_have_no_plan() {
    let huge = Request { bytes: usize::MAX / 2, first: 0, last: 0 };
    assert_eq!(Plan::of(&[huge, huge, huge]), None);
    assert_eq!(Plan::of(&[]), Some(Plan::default()));
}

#[test]
fn aliases_extend_lifetimes() {
    let buffer = |place| Buffer { bytes: Size::Const(8), place };
    let alias = |of| buffer(Place::Alias { of, offset: Size::Const(0) });
    let launch = |buffers: &[usize]| Launch {
        kernel: 0,
        buffers: buffers.to_vec(),
        dims: vec![],
        tasks: Size::Const(1),
        grain: Size::Const(1),
        scratch: Size::Const(0),
    };
    let program = Program {
        buffers: vec![buffer(Place::Temporary), alias(0), alias(1), buffer(Place::Temporary)],
        launches: vec![launch(&[0]), launch(&[]), launch(&[2])],
        ..Program::default()
    };
    assert_eq!(lifetimes(&program), [Some((0, 2)), None, None, None]);
    let separate = Program { separate: true, ..program };
    assert_eq!(lifetimes(&separate), [Some((0, 3)), None, None, None]);
}

#[test]
fn loops_extend_lifetimes() {
    let launch = |buffers: &[usize]| Launch {
        kernel: 0,
        buffers: buffers.to_vec(),
        dims: vec![],
        tasks: Size::Const(1),
        grain: Size::Const(1),
        scratch: Size::Const(0),
    };
    let temporary = Buffer { bytes: Size::Const(8), place: Place::Temporary };
    let program = Program {
        buffers: vec![temporary; 3],
        launches: [[0, 0], [0, 1], [1, 2], [1, 1], [2, 2]].map(|b| launch(&b)).to_vec(),
        loops: vec![Loop {
            launches: 1..4,
            trips: Size::Const(3),
            reverse: false,
            condition: None,
        }],
        ..Program::default()
    };
    // One goes in, one stays inside, one comes out.
    assert_eq!(lifetimes(&program), [Some((0, 3)), Some((1, 3)), Some((1, 4))]);
}
