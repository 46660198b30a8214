//! Reading by runs is compared with examining block by block, on streams with everything that a
//! ring may hold, wherever chunks end.

use super::*;
use crate::block::{self, HEADER, Owner, PAYLOAD};
use crate::layout::{Geometry, SectionHeader};
use crate::members::redundancy::Redundancy;
use crate::read::audit::Audit;
use crate::read::merge::{Cursor, Streams};
use firndb_base::rng::Rng;
use firndb_device::{Device, Durability, FaultPlan, Faulty, Fill, MemoryDevice};

/// Block at which the second epoch begins.
const SECOND: u64 = 60;
const SECTIONS: u64 = 6;

fn table() -> Arc<EpochTable> {
    let second = Lsn(SECOND * PAYLOAD as u64);
    Arc::new(EpochTable::new(&[(Epoch(2), Lsn::FIRST), (Epoch(4), second)]).unwrap())
}

/// A ring that is being filled with blocks.
struct Ring {
    rng: Rng,
    owner: Owner,
    geometry: Geometry,
    device: Arc<Faulty>,
    /// Number of the next block of log.
    next: u64,
}

impl Ring {
    fn new(seed: u64, unit: u64) -> Ring {
        let geometry = Geometry { start: 2 * unit, unit, section_units: 12, sections: SECTIONS };
        let memory = MemoryDevice::new("ring");
        memory.grow(geometry.start + geometry.ring_bytes(), Fill::Written).unwrap();
        let device = Arc::new(Faulty::new(Arc::new(memory), &FaultPlan::new(0)));
        Ring { rng: Rng::new(seed), owner: Owner::main(7, 1), geometry, device, next: 9 }
    }

    fn put(&self, linear: u64, unit: &[u8]) {
        self.device.write(self.geometry.offset(linear), unit, Durability::Later).unwrap();
    }

    /// A block of log, or one that looks nearly so.
    fn block(&mut self, number: u64, epoch: u32, fill: usize) -> [u8; BLOCK] {
        let mut out = [0; BLOCK];
        let lsn = Lsn(number * PAYLOAD as u64);
        let durable = Lsn(self.rng.below(number + 30) * PAYLOAD as u64);
        let header = BlockHeader { epoch: Epoch(epoch), flags: 0, fill: fill as u16, lsn, durable };
        header.encode(self.owner, &mut out);
        out[HEADER..HEADER + fill].fill(number as u8);
        block::seal(&mut out);
        out
    }

    /// A run of log with what may come between: copies that are fuller, blocks of earlier laps, of
    /// other epochs and beyond an epoch's end, seals, damage, padding.
    fn request(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        let epoch = if self.next < SECOND { 2 } else { 4 };
        let (kind, count) = (self.rng.below(12), self.rng.between(1, 20));
        let from = match kind {
            0 => self.next.saturating_sub(self.rng.below(12)).max(1),
            1 => self.next + self.rng.below(9),
            _ => self.next,
        };
        let epoch = match kind {
            2 => [1, 2, 3, 4, 9][self.rng.below(5) as usize],
            _ => epoch,
        };
        for number in from..from + count {
            let last = number + 1 == from + count;
            let fill = if last { self.rng.below(PAYLOAD as u64 + 1) as usize } else { PAYLOAD };
            let mut block = self.block(number, epoch, fill);
            if self.rng.one_in(40) {
                block[100] ^= 1;
            }
            out.extend(block);
            if !matches!(kind, 0 | 2) {
                // The last block is written again, unless it is full.
                self.next = if fill == PAYLOAD { number + 1 } else { number };
            }
        }
        if kind == 3 {
            let number = if self.rng.one_in(2) { SECOND } else { self.next };
            out.extend(self.block(number, epoch, 0));
        }
        out
    }

    /// Fills the ring, for somewhat more than a lap, and returns the range to read.
    fn fill(&mut self) -> Range<u64> {
        let last = self.rng.between(SECTIONS, 2 * SECTIONS);
        for sequence in 1..=last {
            let (begin, unit) = (self.geometry.linear(sequence), self.geometry.unit);
            let first = Lsn(self.next * PAYLOAD as u64);
            let mut header = vec![0; unit as usize];
            let section = SectionHeader { sequence, first, ..SectionHeader::unused(Epoch(2)) };
            section.encode(self.owner, &mut header[..BLOCK]);
            block::seal(&mut header[..BLOCK]);
            if self.rng.one_in(6) {
                header[9] ^= 1;
            }
            self.put(begin, &header);
            // The rest of the last section is left over from the lap before.
            let units = if sequence == last { 5 } else { self.geometry.section_units };
            let mut bytes = Vec::new();
            while (bytes.len() as u64) < (units - 1) * unit {
                let padded = bytes.len().next_multiple_of(unit as usize);
                bytes.resize(padded, 0);
                bytes.extend(self.request());
            }
            bytes.truncate(((units - 1) * unit) as usize);
            self.put(begin + unit, &bytes);
        }
        for _ in 0..self.rng.below(4) {
            let at = self.rng.below(SECTIONS * self.geometry.section_units) * self.geometry.unit;
            self.device.make_unreadable(self.geometry.start + at, 1);
        }
        let first = (last + 1).saturating_sub(SECTIONS).max(1);
        self.geometry.linear(first)..self.geometry.linear(last) + self.geometry.section_bytes()
    }
}

/// Everything that reading a stream yields.
#[derive(Debug, PartialEq)]
struct Yield {
    /// LSN, epoch, payload.
    blocks: Vec<(Lsn, usize, Vec<u8>)>,
    seen: String,
    doubts: String,
}

fn read(mut reader: Reader, by_runs: bool, rng: &mut Rng) -> Yield {
    let mut blocks = Vec::new();
    loop {
        match reader.peek() {
            Peek::Run(run) => {
                let count = rng.between(1, run.blocks as u64) as usize;
                for i in 0..count {
                    let one = run.without(i).expect("a block is left");
                    let payload = reader.bytes(one.at + HEADER, one.fill()).to_vec();
                    blocks.push((one.lsn, one.epoch, payload));
                }
                reader.pop(count);
            }
            Peek::Starved => {
                reader.load().unwrap();
                if !by_runs {
                    reader.ahead.iter_mut().for_each(|chunk| chunk.runs.clear());
                }
            }
            Peek::End => break,
        }
    }
    let doubts = (0..400).map(|block| reader.doubts_at(Lsn(block * PAYLOAD as u64))).collect::<Vec<_>>();
    Yield { blocks, seen: format!("{:?}", reader.seen), doubts: format!("{doubts:?}") }
}

#[test]
fn runs_yield_what_examining_block_by_block_yields_wherever_chunks_end() {
    let (mut blocks, mut long, mut unknown) = (0, 0, 0);
    for seed in 0..300 {
        let unit = if seed % 3 == 0 { 4096 } else { 512 };
        let mut ring = Ring::new(seed, unit);
        let range = ring.fill();
        let device: Arc<dyn Device> = ring.device.clone();
        let member = Arc::new(Member::read_stream(&device, ring.owner, ring.geometry).unwrap());
        let reader = |threads, chunk_bytes| {
            let how = ReadAhead { threads, chunk_bytes, chunks: 4 };
            Reader::new(Arc::clone(&member), table(), range.clone(), how)
        };
        let rng = &mut ring.rng;
        let whole = (range.end - range.start) as usize;
        let expected = read(reader(false, whole), false, rng);
        for units in [1, 2, 7, 12, 100] {
            let chunk = units * unit as usize;
            for threads in [false, true] {
                let found = read(reader(threads, chunk), true, rng);
                assert_eq!(found, expected, "seed {seed}, chunks of {units} units, threads: {threads}");
            }
        }
        blocks += expected.blocks.len();
        let mut by_runs = reader(false, whole);
        by_runs.load().unwrap();
        long += by_runs.ahead.iter().flat_map(|chunk| &chunk.runs).filter(|run| run.blocks > 5).count();
        unknown += usize::from(expected.seen.contains("unknown: Some"));
    }
    assert!(blocks > 10_000 && long > 1000 && unknown > 30, "{blocks} {long} {unknown}");
}

/// Every byte that a cursor over these streams finds, with its epoch and LSN, and what the readers
/// have seen. `windows`: how often more than a block was available.
fn merged(
    streams: Streams,
    by_windows: bool,
    rng: &mut Rng,
    windows: &mut usize,
) -> (Vec<(u64, u8)>, String) {
    let mut cursor = Cursor::new(streams, 0, Lsn::FIRST, None);
    // Where copies are counted, the cursor moves block by block.
    cursor.audit = (!by_windows).then(|| Audit::new(Redundancy::default(), 0));
    let mut found = Vec::new();
    for (epoch, range) in table().ranges().iter().enumerate() {
        let (mut pos, end) = (range.start, range.limit.min(Lsn(800 * PAYLOAD as u64)));
        while pos < end {
            cursor.seek(epoch, pos);
            let available = cursor.available().unwrap().min(end.since(pos) as usize);
            if available == 0 {
                pos = block::next_base(pos.advance(1));
                continue;
            }
            *windows += usize::from(available > PAYLOAD);
            let mut bytes = vec![0; rng.between(1, available as u64) as usize];
            assert!(cursor.read(&mut bytes).unwrap());
            found.extend((pos.0..).zip(bytes));
            pos = cursor.pos();
        }
    }
    cursor.drain().unwrap();
    let mut seen: Vec<String> = cursor.readers().iter().map(|reader| format!("{:?}", reader.seen)).collect();
    let doubts = (0..800).map(|number| cursor.doubts_at(Lsn(number * PAYLOAD as u64)));
    seen.push(format!("{:?}", doubts.collect::<Vec<_>>()));
    (found, seen.join(" "))
}

#[test]
fn windows_yield_what_merging_block_by_block_yields() {
    let (mut bytes, mut windows, mut none) = (0, 0, 0);
    for seed in 0..300 {
        let unit = if seed % 2 == 0 { 4096 } else { 512 };
        let mut rings: Vec<Ring> = (0..1 + seed % 4).map(|i| Ring::new(1000 * seed + i, unit)).collect();
        rings.iter_mut().for_each(|ring| {
            ring.fill();
        });
        let member = |ring: &Ring| {
            let device: Arc<dyn Device> = ring.device.clone();
            Arc::new(Member::read_stream(&device, ring.owner, ring.geometry).unwrap())
        };
        let members: Vec<Arc<Member>> = rings.iter().map(member).collect();
        let streams = |threads| Streams {
            members: members.clone(),
            epochs: table(),
            last_blocks: None,
            threads,
            read_ahead_bytes: 0,
        };
        let mut rng = Rng::new(seed);
        let expected = merged(streams(false), false, &mut rng, &mut none);
        for threads in [false, true] {
            let found = merged(streams(threads), true, &mut rng, &mut windows);
            assert_eq!(found.1, expected.1, "seed {seed}, threads: {threads}");
            assert!(found.0 == expected.0, "seed {seed}, threads: {threads}");
        }
        bytes += expected.0.len();
    }
    assert!(bytes > 5_000_000 && windows > 5000 && none == 0, "{bytes} {windows} {none}");
}
