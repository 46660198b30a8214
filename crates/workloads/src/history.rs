//! Judges a history of transactions by its direct serialization graph.
//!
//! Every row is a list to which transactions append elements of their own; a transaction that
//! writes a list has read it under a lock, so the list itself records the order of its versions,
//! independently of the engine. Edges:
//!
//! * *ww*: the version of one is followed by the version of another;
//! * *wr*: one reads the version of another;
//! * *rw*: one reads a version that another follows (by key, or by a scan over a range);
//! * *time*: one had ended before another began.
//!
//! Judging takes time in proportion to the history. Real time would need an edge for each pair of
//! transactions; a chain of *time nodes*, one for each moment at which a transaction ended,
//! replaces them: each transaction has an edge to the moment of its end, and the last moment before
//! it began has an edge to it.
//!
//! After Adya, "Weak Consistency" (1999), and Kingsbury and Alvaro, "Elle" (2020).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::fmt;

/// An element of a list: the transaction that appended it, and which of its appends it was.
pub type Element = (u32, u32);

/// What a transaction did, in order.
#[derive(Clone, Debug)]
pub enum Event {
    /// Appended the element to the list of this key.
    Append(u32, Element),
    /// Undid that append by a rollback to a savepoint.
    Undo(u32, Element),
    /// Read the list of this key; the flag says whether as part of a scan.
    Read(u32, Vec<Element>, bool),
}

/// One transaction as its client saw it.
#[derive(Clone, Debug, Default)]
pub struct Txn {
    /// Number, unique in the history.
    pub id: u32,
    /// Whether it committed.
    pub committed: bool,
    /// What it did, in order.
    pub events: Vec<Event>,
    /// Ticks of one clock for all: this one from before its first statement; `ended` from after the
    /// client learned its outcome.
    pub began: u64,
    /// The later of the two ticks.
    pub ended: u64,
}

/// The anomalies of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phenomenon {
    /// A transaction does not see its own writes.
    Internal,
    /// A committed write is missing from all versions, or versions contradict each other.
    LostUpdate,
    /// Dirty write: a cycle of ww.
    G0,
    /// A write that was rolled back was read, or remained.
    G1a,
    /// An intermediate version, which its own writer replaced, was read.
    G1b,
    /// A cycle of ww and wr.
    G1c,
    /// A cycle with one rw.
    GSingle,
    /// A cycle in which no two rw follow each other.
    GNonadjacent,
    /// A cycle with rw by keys.
    G2Item,
    /// A cycle with rw by keys or scans.
    G2,
}

/// The anomalies found, each with one example.
#[derive(Default)]
pub struct Findings(pub BTreeMap<Phenomenon, String>);

/// The edges that a phenomenon's cycle may contain.
type EdgeFilter = fn(Edge) -> bool;

impl Findings {
    /// Whether this phenomenon was found.
    #[must_use]
    pub fn has(&self, phenomenon: Phenomenon) -> bool {
        self.0.contains_key(&phenomenon)
    }
    fn add(&mut self, phenomenon: Phenomenon, example: impl FnOnce() -> String) {
        self.0.entry(phenomenon).or_insert_with(example);
    }
}

impl fmt::Debug for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(&self.0).finish()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Edge {
    Ww,
    Wr,
    RwItem,
    RwPredicate,
    Time,
}

impl Edge {
    fn is_rw(self) -> bool {
        matches!(self, Edge::RwItem | Edge::RwPredicate)
    }
}

/// Judges a history. `last` are the lists that were read after all transactions had ended.
#[must_use]
pub fn judge(txns: &[Txn], last: &BTreeMap<u32, Vec<Element>>) -> Findings {
    let mut findings = Findings::default();
    let judge = Judge::new(txns, last);
    judge.check_last(&mut findings);
    let mut graph = Graph::new(txns);
    judge.ww_edges(&mut graph);
    for (at, txn) in txns.iter().enumerate().filter(|(_, txn)| txn.committed) {
        judge.read_edges(at, txn, &mut graph, &mut findings);
    }
    judge.time_edges(&mut graph);
    graph.find_cycles(&mut findings);
    findings
}

struct Judge<'a> {
    txns: &'a [Txn],
    last: &'a BTreeMap<u32, Vec<Element>>,
    by_id: BTreeMap<u32, usize>,
    /// For each committed transaction, by number: (key, element) of its appends that were not
    /// undone, in order.
    standing: BTreeMap<u32, Vec<(u32, Element)>>,
    /// For each list in `last`, the length of the prefix of elements that belong there.
    sound: BTreeMap<u32, usize>,
}

const NONE: &[Element] = &[];

impl<'a> Judge<'a> {
    fn new(txns: &'a [Txn], last: &'a BTreeMap<u32, Vec<Element>>) -> Judge<'a> {
        let by_id = txns.iter().enumerate().map(|(at, txn)| (txn.id, at)).collect();
        let mut standing = BTreeMap::new();
        for txn in txns.iter().filter(|txn| txn.committed) {
            let mut kept: Vec<(u32, Element)> = Vec::new();
            for event in &txn.events {
                match event {
                    Event::Append(key, element) => kept.push((*key, *element)),
                    Event::Undo(key, element) => kept.retain(|other| other != &(*key, *element)),
                    Event::Read(..) => {}
                }
            }
            standing.insert(txn.id, kept);
        }
        let mut judge = Judge { txns, last, by_id, standing, sound: BTreeMap::new() };
        judge.sound = last
            .iter()
            .map(|(&key, list)| {
                let sound = list.iter().position(|&element| !judge.stands(key, element));
                (key, sound.unwrap_or(list.len()))
            })
            .collect();
        judge
    }

    fn last(&self, key: u32) -> &[Element] {
        self.last.get(&key).map_or(NONE, Vec::as_slice)
    }

    fn stands(&self, key: u32, element: Element) -> bool {
        self.standing.get(&element.0).is_some_and(|kept| kept.contains(&(key, element)))
    }

    /// Checks that each committed element is there exactly once, and no other.
    fn check_last(&self, findings: &mut Findings) {
        for (&key, list) in self.last {
            for &element in list {
                if !self.stands(key, element) {
                    findings.add(Phenomenon::G1a, || format!("{element:?} stayed in the list of {key}"));
                }
            }
        }
        let mut found: BTreeMap<(u32, Element), usize> = BTreeMap::new();
        for (&key, list) in self.last {
            for &element in list {
                *found.entry((key, element)).or_default() += 1;
            }
        }
        for (key, element) in self.standing.values().flatten() {
            let times = found.get(&(*key, *element)).copied().unwrap_or(0);
            if times != 1 {
                findings.add(Phenomenon::LostUpdate, || {
                    format!("{element:?} is {times} times in the list of {key}")
                });
            }
        }
    }

    fn ww_edges(&self, graph: &mut Graph) {
        for list in self.last.values() {
            for pair in list.windows(2) {
                if let (Some(&a), Some(&b)) = (self.by_id.get(&pair[0].0), self.by_id.get(&pair[1].0)) {
                    graph.add(a, b, Edge::Ww);
                }
            }
        }
    }

    fn read_edges(&self, at: usize, txn: &Txn, graph: &mut Graph, findings: &mut Findings) {
        let mut own: BTreeMap<u32, Vec<Element>> = BTreeMap::new();
        for event in &txn.events {
            match event {
                Event::Append(key, element) => own.entry(*key).or_default().push(*element),
                Event::Undo(key, element) => own.entry(*key).or_default().retain(|other| other != element),
                Event::Read(key, list, predicate) => {
                    let mine = own.get(key).map_or(NONE, Vec::as_slice);
                    let Some(others) = list.strip_suffix(mine) else {
                        findings.add(Phenomenon::Internal, || {
                            format!("{} read {list:?} of {key} after it had appended {mine:?}", txn.id)
                        });
                        continue;
                    };
                    let rw = if *predicate { Edge::RwPredicate } else { Edge::RwItem };
                    self.read(at, *key, others, rw, graph, findings);
                }
            }
        }
    }

    /// One version read by the transaction at `at`.
    fn read(
        &self,
        at: usize,
        key: u32,
        list: &[Element],
        rw: Edge,
        graph: &mut Graph,
        findings: &mut Findings,
    ) {
        let reader = self.txns[at].id;
        let is_version = self.last(key).starts_with(list);
        if !(is_version && list.len() <= self.sound.get(&key).copied().unwrap_or(0))
            && let Some(&element) = list.iter().find(|element| !self.stands(key, **element))
        {
            findings.add(Phenomenon::G1a, || format!("{reader} read {element:?} of {key}"));
            return;
        }
        if !is_version {
            findings.add(Phenomenon::LostUpdate, || {
                format!("{reader} read {list:?} of {key}, which became {:?}", self.last(key))
            });
            return;
        }
        let next = self.last(key).get(list.len()).map(|element| element.0);
        if let Some(&(writer, part)) = list.last() {
            graph.add(self.by_id[&writer], at, Edge::Wr);
            if next == Some(writer) && writer != reader {
                findings.add(Phenomenon::G1b, || format!("{reader} read append {part} of {writer} to {key}"));
            }
        }
        if let Some(next) = next.and_then(|next| self.by_id.get(&next)) {
            graph.add(at, *next, rw);
        }
    }

    fn time_edges(&self, graph: &mut Graph) {
        let committed = || self.txns.iter().enumerate().filter(|(_, txn)| txn.committed);
        let ends: BTreeSet<u64> = committed().map(|(_, txn)| txn.ended).collect();
        let ends: Vec<u64> = ends.into_iter().collect();
        let first = graph.add_time_nodes(ends.len());
        for at in 1..ends.len() {
            graph.add(first + at - 1, first + at, Edge::Time);
        }
        for (at, txn) in committed() {
            let ended = ends.partition_point(|&end| end < txn.ended);
            graph.add(at, first + ended, Edge::Time);
            let before = ends.partition_point(|&end| end < txn.began);
            if before > 0 {
                graph.add(first + before - 1, at, Edge::Time);
            }
        }
    }
}

/// Transactions, then time nodes, and the edges between them.
struct Graph<'a> {
    txns: &'a [Txn],
    edges: Vec<BTreeSet<(usize, Edge)>>,
}

impl<'a> Graph<'a> {
    fn new(txns: &'a [Txn]) -> Graph<'a> {
        Graph { txns, edges: vec![BTreeSet::new(); txns.len()] }
    }

    /// Adds nodes that are moments, and returns the first.
    fn add_time_nodes(&mut self, count: usize) -> usize {
        let first = self.edges.len();
        self.edges.resize(first + count, BTreeSet::new());
        first
    }

    fn add(&mut self, from: usize, to: usize, edge: Edge) {
        if from != to {
            self.edges[from].insert((to, edge));
        }
    }

    fn find_cycles(&self, findings: &mut Findings) {
        let kinds: [(Phenomenon, EdgeFilter); 4] = [
            (Phenomenon::G0, |edge| matches!(edge, Edge::Ww | Edge::Time)),
            (Phenomenon::G1c, |edge| !edge.is_rw()),
            (Phenomenon::G2Item, |edge| edge != Edge::RwPredicate),
            (Phenomenon::G2, |_| true),
        ];
        for (phenomenon, allowed) in kinds {
            if let Some(cycle) = self.cycle(allowed) {
                findings.add(phenomenon, || show(self.txns, &cycle));
            }
        }
        if let Some(cycle) = self.cycle_with_one_rw() {
            findings.add(Phenomenon::GSingle, || show(self.txns, &cycle));
        }
        if self.has_nonadjacent_cycle() {
            findings.add(Phenomenon::GNonadjacent, || "two rw never follow each other in it".to_owned());
        }
    }

    /// A cycle of allowed edges.
    fn cycle(&self, allowed: impl Fn(Edge) -> bool) -> Option<Vec<(usize, Edge)>> {
        let next = |node: usize| {
            let edges = self.edges[node].iter().filter(|(_, edge)| allowed(*edge));
            edges.map(|(to, _)| *to).collect::<Vec<_>>()
        };
        let node = on_a_cycle(self.edges.len(), next)?;
        self.path(node, node, |_, edge| allowed(edge))
    }

    /// The shortest path from one node to another along allowed edges (given as successors): at
    /// least one edge.
    fn path(
        &self,
        from: usize,
        to: usize,
        allowed: impl Fn(usize, Edge) -> bool,
    ) -> Option<Vec<(usize, Edge)>> {
        let mut before: BTreeMap<usize, (usize, Edge)> = BTreeMap::new();
        let mut todo = VecDeque::from([from]);
        while let Some(node) = todo.pop_front() {
            for &(next, edge) in self.edges[node].iter().filter(|(next, edge)| allowed(*next, *edge)) {
                before.entry(next).or_insert_with(|| {
                    todo.push_back(next);
                    (node, edge)
                });
            }
            if before.contains_key(&to) {
                break;
            }
        }
        let mut path = Vec::new();
        let mut node = to;
        loop {
            let &(previous, edge) = before.get(&node)?;
            path.push((previous, edge));
            node = previous;
            if node == from {
                path.reverse();
                return Some(path);
            }
        }
    }

    fn cycle_with_one_rw(&self) -> Option<Vec<(usize, Edge)>> {
        let order = self.order_without_rw();
        for (from, edges) in self.edges.iter().enumerate() {
            for &(to, edge) in edges.iter().filter(|(_, edge)| edge.is_rw()) {
                let path = match &order {
                    // A path back goes only through nodes between the two in this order: mostly
                    // there are none.
                    Some(order) if order[to] > order[from] => None,
                    Some(order) => {
                        self.path(to, from, |next, edge| !edge.is_rw() && order[next] <= order[from])
                    }
                    None => self.path(to, from, |_, edge| !edge.is_rw()),
                };
                if let Some(mut path) = path {
                    path.insert(0, (from, edge));
                    return Some(path);
                }
            }
        }
        None
    }

    /// The position of each node in an order that agrees with every edge but rw, and otherwise with
    /// time; `None` if these edges have a cycle.
    fn order_without_rw(&self) -> Option<Vec<usize>> {
        let allowed =
            |node: usize| self.edges[node].iter().filter(|(_, edge)| !edge.is_rw()).map(|(to, _)| *to);
        let mut degree = vec![0usize; self.edges.len()];
        for node in 0..self.edges.len() {
            allowed(node).for_each(|to| degree[to] += 1);
        }
        // Moments first: they are ready only when every transaction that ended by then has its
        // position.
        let key = |node: usize| Reverse((self.txns.get(node).map_or(0, |txn| txn.ended), node));
        let mut ready: BinaryHeap<Reverse<(u64, usize)>> =
            (0..self.edges.len()).filter(|&node| degree[node] == 0).map(key).collect();
        let mut order = vec![usize::MAX; self.edges.len()];
        let mut placed = 0;
        while let Some(Reverse((_, node))) = ready.pop() {
            order[node] = placed;
            placed += 1;
            for to in allowed(node) {
                degree[to] -= 1;
                if degree[to] == 0 {
                    ready.push(key(to));
                }
            }
        }
        (placed == order.len()).then_some(order)
    }

    /// Whether there is a cycle in which no rw follows another: a cycle in the graph of (node,
    /// whether it was entered by rw).
    fn has_nonadjacent_cycle(&self) -> bool {
        let next = |node: usize| {
            let (at, by_rw) = (node / 2, node % 2 == 1);
            let edges = self.edges[at].iter().filter(|(_, edge)| !(by_rw && edge.is_rw()));
            edges.map(|(to, edge)| to * 2 + usize::from(edge.is_rw())).collect::<Vec<_>>()
        };
        on_a_cycle(self.edges.len() * 2, next).is_some()
    }
}

/// Finds a node on a cycle: repeatedly removes nodes without predecessors, then nodes without
/// successors; a search from any node that is left meets a cycle.
fn on_a_cycle(nodes: usize, next: impl Fn(usize) -> Vec<usize>) -> Option<usize> {
    let forward: Vec<Vec<usize>> = (0..nodes).map(next).collect();
    let mut backward = vec![Vec::new(); nodes];
    for (from, tos) in forward.iter().enumerate() {
        tos.iter().for_each(|to| backward[*to].push(from));
    }
    let mut alive = vec![true; nodes];
    for (edges, against) in [(&forward, &backward), (&backward, &forward)] {
        let mut degree: Vec<usize> =
            against.iter().map(|from| from.iter().filter(|node| alive[**node]).count()).collect();
        let mut todo: Vec<usize> = (0..nodes).filter(|node| alive[*node] && degree[*node] == 0).collect();
        while let Some(node) = todo.pop() {
            alive[node] = false;
            for &to in &edges[node] {
                degree[to] -= 1;
                if degree[to] == 0 && alive[to] {
                    todo.push(to);
                }
            }
        }
    }
    // Nodes between two cycles are on none: the search from any that is left meets one that is.
    let start = (0..nodes).find(|node| alive[*node])?;
    let mut seen = BTreeSet::new();
    let mut at = start;
    while seen.insert(at) {
        at = *forward[at].iter().find(|to| alive[**to]).expect("each that is left leads on");
    }
    Some(at)
}

fn show(txns: &[Txn], cycle: &[(usize, Edge)]) -> String {
    let named = cycle.iter().filter_map(|(node, edge)| Some((txns.get(*node)?.id, edge)));
    named.map(|(id, edge)| format!("{id} -{edge:?}-> ")).collect()
}
