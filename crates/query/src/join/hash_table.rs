//! Rows in memory by the hashes of their keys, in partitions that can be taken out.

use super::rest::Kept;
use crate::context::Context;
use crate::error::QueryError;
use firndb_spill::Reservation;
use firndb_spill::split_record;
use firndb_spill::{Arena, Place};

/// No entry.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Entry {
    hash: u64,
    partition: u32,
    record: Place,
    /// The next entry of the bucket.
    next: u32,
}

pub(crate) struct HashTable {
    /// Records of each partition: length of the key, key, row.
    partitions: Vec<Arena>,
    entries: Vec<Entry>,
    buckets: Vec<u32>,
    entries_reserved: Reservation,
    buckets_reserved: Reservation,
}

impl HashTable {
    pub(crate) fn new(partitions: usize, context: &Context) -> HashTable {
        let arena = || Arena::new(&context.memory, context.share / partitions);
        HashTable {
            partitions: (0..partitions).map(|_| arena()).collect(),
            entries: Vec::new(),
            buckets: Vec::new(),
            entries_reserved: Reservation::none(&context.memory),
            buckets_reserved: Reservation::none(&context.memory),
        }
    }

    /// Bytes that its rows take.
    pub(crate) fn bytes(&self) -> usize {
        self.partitions.iter().map(Arena::bytes).sum::<usize>() + self.entries_reserved.bytes()
    }

    /// Bytes that it will take at most with another record of this length, buckets included.
    pub(crate) fn bytes_with(&self, partition: usize, len: usize) -> usize {
        let records: usize = self.partitions.iter().map(Arena::bytes).sum();
        let one = self.partitions[partition].bytes_with(len) - self.partitions[partition].bytes();
        // Entries double by copying; buckets are at most twice as many as they.
        let growth = if self.entries.len() == self.entries.capacity() { 3 } else { 1 };
        let entries = self.entries.capacity() * growth * size_of::<Entry>();
        records + one + entries + 2 * self.entries.len() * size_of::<u32>()
    }

    /// The partition with the most bytes, if any has some.
    pub(crate) fn largest(&self) -> Option<usize> {
        let largest = (0..self.partitions.len()).max_by_key(|number| self.partitions[*number].bytes());
        largest.filter(|number| self.partitions[*number].bytes() > 0)
    }

    pub(crate) fn push(
        &mut self,
        partition: usize,
        hash: u64,
        key: &[u8],
        row: &[u8],
    ) -> Result<(), QueryError> {
        let key_len = (key.len() as u32).to_le_bytes();
        self.entries_reserved.grow(&mut self.entries, 1)?;
        let record = self.partitions[partition].push(&[&key_len, key, row])?;
        self.entries.push(Entry { hash, partition: partition as u32, record, next: NONE });
        Ok(())
    }

    /// Shows the rows of a partition, and then forgets them.
    pub(crate) fn take_out(
        &mut self,
        partition: usize,
        mut show: impl FnMut(&[u8]) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        for entry in self.entries.iter().filter(|entry| entry.partition as usize == partition) {
            show(split_record(self.partitions[partition].get(entry.record))?.1)?;
        }
        self.entries.retain(|entry| entry.partition as usize != partition);
        self.entries.shrink_to_fit();
        self.entries_reserved.set(self.entries.capacity() * size_of::<Entry>())?;
        self.partitions[partition].clear();
        Ok(())
    }

    /// All rows were put in: from now on they can be found.
    pub(crate) fn index(&mut self) -> Result<(), QueryError> {
        let buckets = self.entries.len().max(1).next_power_of_two();
        self.buckets_reserved.set(buckets * size_of::<u32>())?;
        self.buckets = vec![NONE; buckets];
        for number in 0..self.entries.len() {
            let bucket = self.entries[number].hash as usize & (buckets - 1);
            self.entries[number].next = std::mem::replace(&mut self.buckets[bucket], number as u32);
        }
        Ok(())
    }

    /// The first entry with this key.
    pub(crate) fn find(&self, hash: u64, key: &[u8]) -> Option<u32> {
        let bucket = hash as usize & (self.buckets.len() - 1);
        self.find_from(self.buckets[bucket], hash, key)
    }

    /// The next entry with the key of this one.
    pub(crate) fn find_next(&self, entry: u32, key: &[u8]) -> Option<u32> {
        let entry = &self.entries[entry as usize];
        self.find_from(entry.next, entry.hash, key)
    }

    fn find_from(&self, mut at: u32, hash: u64, key: &[u8]) -> Option<u32> {
        while at != NONE {
            let entry = &self.entries[at as usize];
            if entry.hash == hash && self.record(entry).0 == key {
                return Some(at);
            }
            at = entry.next;
        }
        None
    }

    pub(crate) fn row(&self, entry: u32) -> &[u8] {
        self.record(&self.entries[entry as usize]).1
    }

    fn record(&self, entry: &Entry) -> (&[u8], &[u8]) {
        let record = self.partitions[entry.partition as usize].get(entry.record);
        split_record(record).expect("put together here")
    }

    /// Forgets all rows, and gives their memory back.
    pub(crate) fn clear(&mut self) {
        self.partitions.iter_mut().for_each(Arena::clear);
        (self.entries, self.buckets) = (Vec::new(), Vec::new());
        self.entries_reserved.set(0).expect("less than before");
        self.buckets_reserved.set(0).expect("less than before");
    }
}

/// In the order in which they came.
impl Kept for HashTable {
    fn len(&self) -> usize {
        self.entries.len()
    }
    fn bytes(&self, number: usize) -> &[u8] {
        self.row(number as u32)
    }
}
