//! The order of functions by their calls.

/// Numbers of functions with callees before their callers, given the callees of each.
/// Errors: the functions of a cycle, in order of its calls.
pub fn callees_first(callees: &[Vec<usize>]) -> Result<Vec<usize>, Vec<usize>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        Open,
        Done,
    }
    let mut marks = vec![Mark::New; callees.len()];
    let mut order = Vec::with_capacity(callees.len());
    // Functions under way, with how many of their callees are done: no recursion, so that a long
    // chain of calls does not need a deep stack.
    let mut path: Vec<(usize, usize)> = Vec::new();
    for root in 0..callees.len() {
        if marks[root] == Mark::New {
            marks[root] = Mark::Open;
            path.push((root, 0));
        }
        while let Some((at, next)) = path.last_mut() {
            let Some(&callee) = callees[*at].get(*next) else {
                marks[*at] = Mark::Done;
                order.push(*at);
                path.pop();
                continue;
            };
            *next += 1;
            match marks[callee] {
                Mark::Done => {}
                Mark::New => {
                    marks[callee] = Mark::Open;
                    path.push((callee, 0));
                }
                Mark::Open => {
                    let from = path.iter().position(|(f, _)| *f == callee);
                    return Err(path[from.unwrap_or(0)..].iter().map(|(f, _)| *f).collect());
                }
            }
        }
    }
    Ok(order)
}
