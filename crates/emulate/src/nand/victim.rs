//! The choice of the block that garbage collection reclaims: pure functions of what is known of
//! each block.

use firndb_base::rng::Rng;

/// How the block to reclaim is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VictimPolicy {
    /// The block with the fewest live pages; of equals, the one that was filled first.
    Greedy,
    /// Any block with equal chance: "asymptotically optimal under certain (reasonable) assumptions"
    /// for wear (Ben-Aroya and Toledo, after Myers 2008, section 2.2).
    Random,
    /// The block with the most of `age * (1 - u) / 2u`, u being its live share (Kawaguchi, Nishioka
    /// and Motoda, "A flash-memory based file system", USENIX 1995): a page that has not changed
    /// for long is worth a copy.
    CostBenefit,
}

/// What a policy knows of a block that could be reclaimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Pages to copy.
    pub live: u32,
    /// Pages of a block.
    pub pages: u32,
    /// Pages that the host has written since one of the block's pages was last written or became
    /// garbage.
    pub age: u64,
}

impl VictimPolicy {
    /// The index of the chosen candidate, `None` if there is no candidate.
    ///
    /// `candidates` come in the order in which the blocks were filled.
    pub fn choose<I>(self, candidates: I, rng: &mut Rng) -> Option<usize>
    where
        I: Iterator<Item = Candidate> + Clone,
    {
        let numbered = candidates.enumerate();
        match self {
            VictimPolicy::Greedy => {
                numbered.min_by_key(|(index, it)| (it.live, *index)).map(|(index, _)| index)
            }
            VictimPolicy::Random => match numbered.clone().count() {
                0 => None,
                count => Some(rng.below(count as u64) as usize),
            },
            VictimPolicy::CostBenefit => numbered
                .max_by(|(i, a), (j, b)| a.benefit().total_cmp(&b.benefit()).then(j.cmp(i)))
                .map(|(index, _)| index),
        }
    }
}

impl Candidate {
    /// Free space times age over the cost of reading and writing what is live. An empty block is
    /// free of cost.
    fn benefit(&self) -> f64 {
        let used = f64::from(self.live) / f64::from(self.pages);
        if self.live == 0 { f64::INFINITY } else { (self.age as f64 + 1.0) * (1.0 - used) / (2.0 * used) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_chooses_as_its_definition_says() {
        let of = |blocks: &[(u32, u64)], policy: VictimPolicy| {
            let all = blocks.iter().map(|(live, age)| Candidate { live: *live, pages: 64, age: *age });
            policy.choose(all, &mut Rng::new(1))
        };
        type Case<'a> = (&'a [(u32, u64)], Option<usize>, Option<usize>);
        let cases: &[Case<'_>] = &[
            (&[], None, None),
            (&[(64, 9)], Some(0), Some(0)),
            (&[(10, 1), (9, 1), (9, 1)], Some(1), Some(1)),
            // Half full and old beats a quarter full and just written: 1000 * 0.5 against 10 * 1.5.
            (&[(32, 1000), (16, 10)], Some(1), Some(0)),
            // A block without live pages is the cheapest.
            (&[(1, 1 << 40), (0, 0)], Some(1), Some(1)),
        ];
        for (blocks, greedy, cost_benefit) in cases {
            assert_eq!(of(blocks, VictimPolicy::Greedy), *greedy, "{blocks:?}");
            assert_eq!(of(blocks, VictimPolicy::CostBenefit), *cost_benefit, "{blocks:?}");
            assert_eq!(of(blocks, VictimPolicy::Random).is_some(), !blocks.is_empty(), "{blocks:?}");
        }
    }

    #[test]
    fn random_gives_every_block_its_turn() {
        let mut rng = Rng::new(3);
        let mut drawn = [0u32; 8];
        for _ in 0..8000 {
            let all = (0..8).map(|live| Candidate { live, pages: 8, age: 0 });
            drawn[VictimPolicy::Random.choose(all, &mut rng).expect("there are eight")] += 1;
        }
        assert!(drawn.iter().all(|count| (850..1150).contains(count)), "{drawn:?}");
    }
}
