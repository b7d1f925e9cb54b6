//! The dependency graph of groups, updated as groups are created and merged.
//!
//! Each merge asks whether a group depends on another one. This search is short for two reasons.
//! The level of a group is above those of the groups it needs, so a search stops at the level of
//! its goal. And the search is bidirectional, so it costs about as much as the shorter direction.

/// The graph of groups, by index. A merged group stands for the group it is part of.
#[derive(Default)]
pub struct Order {
    nodes: Vec<Node>,
    /// For each group, the last search in each direction that visited it.
    seen: Vec<[u32; 2]>,
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

/// The direction of a search.
#[derive(Clone, Copy)]
enum Towards {
    Needs,
    Users,
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
        self.seen.push([0; 2]);
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
        self.depends(reader, producer, false) || self.depends(producer, reader, true)
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

    /// Whether `high` depends on `low` through other groups, or also directly if `direct` is set.
    fn depends(&mut self, high: usize, low: usize, direct: bool) -> bool {
        if self.nodes[high].level <= self.nodes[low].level {
            return false;
        }
        self.search += 1;
        // Groups to visit, each with the number of its neighbours that were visited.
        let mut down = vec![(high, 0)];
        let mut up = vec![(low, 0)];
        loop {
            for (open, towards, from, to) in
                [(&mut down, Towards::Needs, high, low), (&mut up, Towards::Users, low, high)]
            {
                let Some((group, at)) = open.last_mut() else {
                    return false;
                };
                let group = *group;
                let Some(next) = self.neighbour(group, towards, *at) else {
                    open.pop();
                    continue;
                };
                *at += 1;
                if next == to && (direct || group != from) {
                    return true;
                }
                if next != to && self.visit(next, towards) && self.is_within(next, towards, to) {
                    open.push((next, 0));
                }
            }
        }
    }

    /// The neighbour of a group at this index. Several indices may give the same neighbour.
    fn neighbour(&mut self, group: usize, towards: Towards, at: usize) -> Option<usize> {
        let node = &self.nodes[group];
        let neighbours = match towards {
            Towards::Needs => &node.needs,
            Towards::Users => &node.users,
        };
        let next = *neighbours.get(at)?;
        Some(self.find(next))
    }

    /// Whether the current search in this direction has not visited the group; marks it as visited.
    fn visit(&mut self, group: usize, towards: Towards) -> bool {
        let seen = &mut self.seen[group][towards as usize];
        std::mem::replace(seen, self.search) != self.search
    }

    /// Whether `to` can lie in this direction from a group.
    fn is_within(&self, group: usize, towards: Towards, to: usize) -> bool {
        match towards {
            Towards::Needs => self.nodes[group].level > self.nodes[to].level,
            Towards::Users => self.nodes[group].level < self.nodes[to].level,
        }
    }
}
