//! Which of what was not durable survives.

use super::WriteId;
use firndb_base::rng::Rng;
use std::collections::BTreeSet;

/// A way in which a power cut treats what was written and not made durable. Where there is a choice
/// it is drawn from the generator handed in, so a seed replays it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    /// All of it is lost.
    Nothing,
    /// All of it survives, calls that were running included.
    Everything,
    /// Each sector by itself has any of its versions: the durable one or a later one.
    Sectors,
    /// Each write by itself survives whole or not at all: finds wrong order, as torn sectors do
    /// rarely.
    Writes,
    /// All writes but one survive: finds the one whose sync is missing.
    AllButOne,
    /// Only one write survives: finds what was reachable too early.
    OnlyOne,
    /// Writes that began before some moment survive, over all devices, later ones don't.
    Prefix,
    /// As `Prefix`, and of the write at that moment a part survives: its beginning or any sectors
    /// of it.
    Torn,
}

impl Survival {
    /// All ways.
    pub const ALL: [Survival; 8] = [
        Survival::Nothing,
        Survival::Everything,
        Survival::Sectors,
        Survival::Writes,
        Survival::AllButOne,
        Survival::OnlyOne,
        Survival::Prefix,
        Survival::Torn,
    ];
}

/// A survival with its whole-image choices drawn.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Each sector draws.
    Draw,
    /// These writes, and of one more a part: its sectors before the number, or each with an even
    /// chance.
    Writes(BTreeSet<WriteId>, Option<(WriteId, Tear)>),
}

/// Which part of a torn write survives.
#[derive(Clone, Copy, Debug)]
pub(super) enum Tear {
    /// Its first this many sectors.
    First(u64),
    /// Any.
    Any,
}

impl Verdict {
    /// Draws what concerns all devices. `pending` are the writes that are not durable, with their
    /// sectors, in order.
    pub(super) fn draw(survival: Survival, pending: &[(WriteId, u64)], rng: &mut Rng) -> Verdict {
        let ids = || pending.iter().map(|&(id, _)| id);
        let chosen = |rng: &mut Rng| match pending.len() as u64 {
            0 => None,
            count => Some(rng.below(count) as usize),
        };
        match survival {
            Survival::Nothing => Verdict::Writes(BTreeSet::new(), None),
            Survival::Everything => Verdict::Writes(ids().collect(), None),
            Survival::Sectors => Verdict::Draw,
            Survival::Writes => Verdict::Writes(ids().filter(|_| rng.one_in(2)).collect(), None),
            Survival::AllButOne => {
                let lost = chosen(rng).map(|i| pending[i].0);
                Verdict::Writes(ids().filter(|&id| Some(id) != lost).collect(), None)
            }
            Survival::OnlyOne => {
                Verdict::Writes(chosen(rng).map(|i| pending[i].0).into_iter().collect(), None)
            }
            Survival::Prefix => {
                let count = rng.below(pending.len() as u64 + 1) as usize;
                Verdict::Writes(ids().take(count).collect(), None)
            }
            Survival::Torn => {
                let cut = chosen(rng);
                let torn = cut.map(|i| {
                    let (id, sectors) = pending[i];
                    (id, if rng.one_in(2) { Tear::Any } else { Tear::First(rng.below(sectors + 1)) })
                });
                Verdict::Writes(ids().take(cut.unwrap_or(0)).collect(), torn)
            }
        }
    }

    /// Which of a sector's not yet durable `versions` (oldest first, each with the sector's number
    /// within its write) it has after the crash; `None`: the durable one.
    pub(super) fn version(&self, versions: &[(WriteId, u64)], rng: &mut Rng) -> Option<WriteId> {
        match self {
            Verdict::Draw => {
                let drawn = rng.below(versions.len() as u64 + 1) as usize;
                drawn.checked_sub(1).map(|i| versions[i].0)
            }
            Verdict::Writes(alive, torn) => {
                let survives = |&&(id, sector): &&(WriteId, u64)| {
                    alive.contains(&id)
                        || torn.is_some_and(|(torn, tear)| {
                            torn == id
                                && match tear {
                                    Tear::First(count) => sector < count,
                                    Tear::Any => rng.one_in(2),
                                }
                        })
                };
                let mut survives = survives;
                versions.iter().rev().find(|version| survives(version)).map(|&(id, _)| id)
            }
        }
    }
}
