//! The dependency graph of groups, updated as groups are created and merged.
//!
//! The level of a group is above those of the groups it needs, so that a search for a group can
//! stop at its level. Otherwise each merge would search all earlier groups.

/// The graph of groups, by index. A merged group stands for the group it is part of.
#[derive(Default)]
pub struct Order {
    nodes: Vec<Node>,
    /// For each group, the last search that visited it.
    seen: Vec<u32>,
    search: u32,
}

#[derive(Default)]
struct Node {
    /// The group that it was merged into.
    into: Option<usize>,
    needs: Vec<usize>,
    users: Vec<usize>,
    level: u32,
}

impl Order {
    /// Adds a group with the next index.
    pub fn add(&mut self, needs: Vec<usize>) {
        let own = self.nodes.len();
        let level = needs.iter().map(|&need| self.nodes[need].level + 1).max().unwrap_or(0);
        for &need in &needs {
            self.nodes[need].users.push(own);
        }
        self.nodes.push(Node { into: None, needs, users: Vec::new(), level });
        self.seen.push(0);
    }

    /// The groups whose results a group reads, each once.
    pub fn needs(&mut self, group: usize) -> Vec<usize> {
        let mut needs = std::mem::take(&mut self.nodes[group].needs);
        needs.iter_mut().for_each(|need| *need = self.find(*need));
        needs.sort_unstable();
        needs.dedup();
        needs.retain(|&need| need != group);
        self.nodes[group].needs.clone_from(&needs);
        needs
    }

    /// Whether merging `producer` and `reader` would make a group depend on itself.
    pub fn makes_cycle(&mut self, producer: usize, reader: usize) -> bool {
        let others = self.needs(reader).into_iter().filter(|&need| need != producer);
        self.reaches(others.collect(), producer) || self.reaches(vec![producer], reader)
    }

    /// Makes `producer` part of `reader`.
    pub fn merge(&mut self, producer: usize, reader: usize) {
        let Node { needs, users, level, .. } = std::mem::take(&mut self.nodes[producer]);
        self.nodes[producer].into = Some(reader);
        let own = &mut self.nodes[reader];
        own.needs.extend(needs);
        own.users.extend(users);
        own.level = own.level.max(level);
        let needs = self.needs(reader);
        let above = needs.iter().map(|&need| self.nodes[need].level + 1).max().unwrap_or(0);
        self.nodes[reader].level = self.nodes[reader].level.max(above);
        self.raise(reader);
    }

    /// Adds a group with the next index for the last part of another one. The new group needs the
    /// other, and users of the other may need both.
    pub fn split(&mut self, group: usize) {
        let own = self.nodes.len();
        let mut needs = self.needs(group);
        needs.push(group);
        let users = self.nodes[group].users.clone();
        self.add(needs);
        for user in users {
            let user = self.find(user);
            if user != group {
                self.nodes[user].needs.push(own);
                self.nodes[own].users.push(user);
            }
        }
        self.raise(own);
    }

    /// The group that a group was merged into, or itself.
    fn find(&mut self, mut group: usize) -> usize {
        while let Some(into) = self.nodes[group].into {
            if let Some(further) = self.nodes[into].into {
                self.nodes[group].into = Some(further);
            }
            group = into;
        }
        group
    }

    /// Raises the levels of those that need a group, directly or not, above its level.
    fn raise(&mut self, group: usize) {
        let mut open = vec![group];
        while let Some(group) = open.pop() {
            let level = self.nodes[group].level;
            let users = std::mem::take(&mut self.nodes[group].users);
            for &user in &users {
                let user = self.find(user);
                if user != group && self.nodes[user].level <= level {
                    self.nodes[user].level = level + 1;
                    open.push(user);
                }
            }
            self.nodes[group].users = users;
        }
    }

    /// Whether one of these groups is `to`, or depends on it.
    fn reaches(&mut self, mut open: Vec<usize>, to: usize) -> bool {
        self.search += 1;
        let level = self.nodes[to].level;
        while let Some(group) = open.pop() {
            if group == to {
                return true;
            }
            let new = std::mem::replace(&mut self.seen[group], self.search) != self.search;
            if new && self.nodes[group].level > level {
                open.extend(self.needs(group));
            }
        }
        false
    }
}
