//! The number of devices that hold each part of the log.
//!
//! The superblock keeps this durably, so that a recovery that misses a device knows whether it
//! misses log. A thread that lowers the number makes that durable *before* log with fewer copies is
//! acknowledged; a thread that raises it does so after log with more copies has begun.
//!
//! Invariants: the steps ascend, neighbours differ, and no step has fewer than one copy. Log before
//! the first step has one copy.

use firndb_base::Lsn;

/// Number of distinct members that hold each byte of log, as steps by LSN.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redundancy {
    steps: Vec<(Lsn, u8)>,
}

impl Redundancy {
    /// From steps of an LSN and a number of copies; `None` if they break the invariants.
    #[must_use]
    pub fn from_steps(steps: Vec<(Lsn, u8)>) -> Option<Redundancy> {
        let all = Redundancy { steps };
        all.is_sound().then_some(all)
    }

    fn is_sound(&self) -> bool {
        self.steps.iter().all(|&(_, copies)| copies > 0)
            && self.steps.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 != pair[1].1)
    }

    /// `copies` copies of all log from `lsn` on.
    #[must_use]
    pub fn since(lsn: Lsn, copies: u8) -> Redundancy {
        let mut all = Redundancy::default();
        all.set_from(lsn, copies);
        all
    }

    /// The steps: an LSN, and the copies from there on.
    #[must_use]
    pub fn steps(&self) -> &[(Lsn, u8)] {
        &self.steps
    }

    /// Copies of the byte at `lsn`.
    #[must_use]
    pub fn at(&self, lsn: Lsn) -> u8 {
        self.steps.iter().rev().find(|(from, _)| *from <= lsn).map_or(1, |&(_, copies)| copies)
    }

    /// Least number of copies of any log from `lsn` on.
    #[must_use]
    pub fn least_from(&self, lsn: Lsn) -> u8 {
        let later = self.steps.iter().filter(|(from, _)| *from > lsn).map(|&(_, copies)| copies);
        later.fold(self.at(lsn), u8::min)
    }

    /// The LSN from which on all log has at least `copies` copies, if there is one.
    #[must_use]
    pub fn full_from(&self, copies: u8) -> Option<Lsn> {
        match self.steps.iter().rposition(|&(_, has)| has < copies) {
            Some(thin) => self.steps.get(thin + 1).map(|&(from, _)| from),
            None if copies <= 1 => Some(Lsn::ZERO),
            None => self.steps.first().map(|&(from, _)| from),
        }
    }

    /// Sets `copies` copies from `lsn` on.
    pub fn set_from(&mut self, lsn: Lsn, copies: u8) {
        assert!(copies > 0, "log needs at least one copy");
        self.steps.retain(|&(from, _)| from < lsn);
        if self.steps.last().map_or(1, |&(_, before)| before) != copies {
            self.steps.push((lsn, copies));
        }
        debug_assert!(self.is_sound(), "{self:?}");
    }

    /// Sets one copy before `lsn`.
    pub fn thin_before(&mut self, lsn: Lsn) {
        let copies = self.at(lsn);
        self.steps.retain(|&(from, _)| from > lsn);
        self.steps.insert(0, (lsn, copies));
        self.tidy();
    }

    /// A member is gone: log with several copies has one fewer.
    pub fn lose_member(&mut self) {
        for (_, copies) in &mut self.steps {
            *copies = (*copies - 1).max(1);
        }
        self.tidy();
    }

    /// Drops the steps before `lsn`.
    pub fn prune(&mut self, lsn: Lsn) {
        let kept = self.steps.iter().rposition(|&(from, _)| from <= lsn).unwrap_or(0);
        self.steps.drain(..kept);
        debug_assert!(self.is_sound(), "{self:?}");
    }

    fn tidy(&mut self) {
        let mut before = 1;
        self.steps.retain(|&(_, copies)| std::mem::replace(&mut before, copies) != copies);
        debug_assert!(self.is_sound(), "{self:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies of every LSN below 100, byte by byte.
    fn table(of: &Redundancy) -> Vec<u8> {
        (0..100).map(|lsn| of.at(Lsn(lsn))).collect()
    }

    #[test]
    fn it_agrees_with_a_table_of_every_byte() {
        let mut rng = firndb_base::rng::Rng::new(7);
        for _ in 0..500 {
            let (mut steps, mut model) = (Redundancy::default(), vec![1u8; 100]);
            for _ in 0..8 {
                let (lsn, copies) = (rng.below(100), 1 + rng.below(3) as u8);
                if rng.one_in(4) {
                    steps.thin_before(Lsn(lsn));
                    model[..lsn as usize].fill(1);
                } else if rng.one_in(3) {
                    steps.lose_member();
                    model.iter_mut().for_each(|copies| *copies = (*copies - 1).max(1));
                } else {
                    steps.set_from(Lsn(lsn), copies);
                    model[lsn as usize..].fill(copies);
                }
                assert_eq!(table(&steps), model);
                assert!(Redundancy::from_steps(steps.steps.clone()).is_some(), "{steps:?}");
                let from = rng.below(100) as usize;
                assert_eq!(steps.least_from(Lsn(from as u64)), *model[from..].iter().min().unwrap());
                for copies in 1..=3 {
                    let thin = model.iter().rposition(|&has| has < copies);
                    let full = match thin {
                        Some(99) => None,
                        Some(thin) => Some(Lsn(thin as u64 + 1)),
                        None => Some(Lsn(0)),
                    };
                    assert_eq!(steps.full_from(copies), full, "{steps:?} for {copies}");
                }
                let mut pruned = steps.clone();
                pruned.prune(Lsn(from as u64));
                assert_eq!(table(&pruned)[from..], model[from..]);
            }
        }
    }
}
