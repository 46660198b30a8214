//! Judges a history of transactions by its direct serialization graph.
//!
//! Every row is a list to which transactions append elements of their own; whoever writes it has read it
//! under a lock, so the list itself tells the order of its versions, whatever the engine believes. Edges:
//!
//! * *ww*: the version of one is followed by the version of another;
//! * *wr*: one reads the version of another;
//! * *rw*: one reads a version that another follows (by key, or by a scan over a range);
//! * *time*: one had ended before another began.
//!
//! After Adya, "Weak Consistency" (1999), and Kingsbury and Alvaro, "Elle" (2020).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

/// A piece of a list: the transaction that appended it, and which of its appends it was.
pub type Element = (u32, u32);

/// What a transaction did, in order.
#[derive(Clone, Debug)]
pub enum Event {
    /// Appended the element to the list of this key.
    Append(u32, Element),
    /// Undid that append by going back to a savepoint.
    Undo(u32, Element),
    /// Read the list of this key; whether as part of a scan.
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
    /// Ticks of one clock for all: before its first statement, and after its end was told.
    pub began: u64,
    /// The later of the two ticks.
    pub ended: u64,
}

/// What can be wrong with a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phenomenon {
    /// A transaction does not see its own writes.
    Internal,
    /// A committed write is in no version, or versions contradict each other.
    LostUpdate,
    /// Dirty write: a cycle of ww.
    G0,
    /// Something rolled back was read, or stayed.
    G1a,
    /// A version that its writer replaced was read.
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

/// What was found, each with one example for people.
#[derive(Default)]
pub struct Findings(pub BTreeMap<Phenomenon, String>);

/// Which edges a phenomenon's cycle may go along.
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

/// Judges a history. `last` are the lists read when all had ended.
#[must_use]
pub fn judge(txns: &[Txn], last: &BTreeMap<u32, Vec<Element>>) -> Findings {
    let mut findings = Findings::default();
    let judge = Judge::new(txns, last);
    judge.check_last(&mut findings);
    let mut graph = Graph::new(txns.len());
    judge.ww_edges(&mut graph);
    for (at, txn) in txns.iter().enumerate().filter(|(_, txn)| txn.committed) {
        judge.read_edges(at, txn, &mut graph, &mut findings);
    }
    judge.time_edges(&mut graph);
    graph.find_cycles(txns, &mut findings);
    findings
}

struct Judge<'a> {
    txns: &'a [Txn],
    last: &'a BTreeMap<u32, Vec<Element>>,
    by_id: BTreeMap<u32, usize>,
    /// Elements that stand when their transaction has committed, in its order, by key.
    standing: BTreeMap<u32, Vec<(u32, Element)>>,
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
        Judge { txns, last, by_id, standing }
    }

    fn last(&self, key: u32) -> &[Element] {
        self.last.get(&key).map_or(NONE, Vec::as_slice)
    }

    fn stands(&self, key: u32, element: Element) -> bool {
        self.standing.get(&element.0).is_some_and(|kept| kept.contains(&(key, element)))
    }

    /// What committed is there once, and nothing else is.
    fn check_last(&self, findings: &mut Findings) {
        for (&key, list) in self.last {
            for &element in list {
                if !self.stands(key, element) {
                    findings.add(Phenomenon::G1a, || format!("{element:?} stayed in the list of {key}"));
                }
            }
        }
        for (key, element) in self.standing.values().flatten() {
            let times = self.last(*key).iter().filter(|other| *other == element).count();
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
        if let Some(&element) = list.iter().find(|element| !self.stands(key, **element)) {
            findings.add(Phenomenon::G1a, || format!("{reader} read {element:?} of {key}"));
            return;
        }
        if !self.last(key).starts_with(list) {
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
        for (a, first) in self.txns.iter().enumerate().filter(|(_, txn)| txn.committed) {
            for (b, second) in self.txns.iter().enumerate().filter(|(_, txn)| txn.committed) {
                if first.ended < second.began {
                    graph.add(a, b, Edge::Time);
                }
            }
        }
    }
}

/// Transactions and what orders them.
struct Graph {
    edges: Vec<BTreeSet<(usize, Edge)>>,
}

impl Graph {
    fn new(nodes: usize) -> Graph {
        Graph { edges: vec![BTreeSet::new(); nodes] }
    }

    fn add(&mut self, from: usize, to: usize, edge: Edge) {
        if from != to {
            self.edges[from].insert((to, edge));
        }
    }

    fn find_cycles(&self, txns: &[Txn], findings: &mut Findings) {
        let kinds: [(Phenomenon, EdgeFilter); 4] = [
            (Phenomenon::G0, |edge| matches!(edge, Edge::Ww | Edge::Time)),
            (Phenomenon::G1c, |edge| !edge.is_rw()),
            (Phenomenon::G2Item, |edge| edge != Edge::RwPredicate),
            (Phenomenon::G2, |_| true),
        ];
        for (phenomenon, allowed) in kinds {
            if let Some(cycle) = self.cycle(allowed) {
                findings.add(phenomenon, || show(txns, &cycle));
            }
        }
        if let Some(cycle) = self.cycle_with_one_rw() {
            findings.add(Phenomenon::GSingle, || show(txns, &cycle));
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
        self.path(node, node, &allowed)
    }

    /// The shortest way from one to another by allowed edges: at least one.
    fn path(&self, from: usize, to: usize, allowed: impl Fn(Edge) -> bool) -> Option<Vec<(usize, Edge)>> {
        let mut before: BTreeMap<usize, (usize, Edge)> = BTreeMap::new();
        let mut todo = VecDeque::from([from]);
        while let Some(node) = todo.pop_front() {
            for &(next, edge) in self.edges[node].iter().filter(|(_, edge)| allowed(*edge)) {
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
        for (from, edges) in self.edges.iter().enumerate() {
            for &(to, edge) in edges.iter().filter(|(_, edge)| edge.is_rw()) {
                if let Some(mut path) = self.path(to, from, |edge| !edge.is_rw()) {
                    path.insert(0, (from, edge));
                    return Some(path);
                }
            }
        }
        None
    }

    /// Whether there is a cycle in which no rw follows another: a cycle in the graph of (node, whether it
    /// was entered by rw).
    fn has_nonadjacent_cycle(&self) -> bool {
        let next = |node: usize| {
            let (at, by_rw) = (node / 2, node % 2 == 1);
            let edges = self.edges[at].iter().filter(|(_, edge)| !(by_rw && edge.is_rw()));
            edges.map(|(to, edge)| to * 2 + usize::from(edge.is_rw())).collect::<Vec<_>>()
        };
        on_a_cycle(self.edges.len() * 2, next).is_some()
    }
}

/// A node that lies on a cycle: what is left when nodes that nobody leads to are taken away, again and
/// again, and then those that lead nowhere.
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
    // Between two cycles lie nodes that are on none: the search from any that is left meets one that is.
    let start = (0..nodes).find(|node| alive[*node])?;
    let mut seen = BTreeSet::new();
    let mut at = start;
    while seen.insert(at) {
        at = *forward[at].iter().find(|to| alive[**to]).expect("each that is left leads on");
    }
    Some(at)
}

fn show(txns: &[Txn], cycle: &[(usize, Edge)]) -> String {
    cycle.iter().map(|(node, edge)| format!("{} -{edge:?}-> ", txns[*node].id)).collect()
}
