//! A device's behaviour in time, without a device.

use crate::cache::Cache;
use crate::channels::{Channels, Service};
use crate::disk::Disks;
use crate::freezes::Freezes;
use crate::limits::Limits;
use crate::outliers::{Met, Rule};
use crate::request::{Request, RequestKind};
use crate::statistics::Statistics;
use crate::streams::{Course, Streams};
use firndb_base::rng::Rng;
use firndb_profile::{Blocks, DeviceProfile, Op, Outliers, ProfileError};
use std::time::Duration;

/// Computes when a device of this profile completes each request.
///
/// Pure: completions follow from the profile, the seed, and the requests with their moments, and
/// from nothing else. Moments are durations since the model was made. They never go back: a request
/// that is submitted at an earlier moment than the one before it counts as submitted with it. The
/// completion of a request is fixed when it is submitted: later ones do not change it.
#[derive(Clone, Debug)]
pub struct Model {
    server: Server,
    cache: Option<Cache>,
    limits: Limits,
    writes: Streams,
    outliers: Vec<Rule>,
    rng: Rng,
    freezes: Freezes,
    /// The latest moment of submission, of the clock.
    seen: u64,
    /// Disks, among which the delay of the cache's draining is divided.
    spindles: u64,
    statistics: Statistics,
}

#[derive(Clone, Debug)]
enum Server {
    /// Boxed: it is several times larger than the other variant.
    Channels(Box<Channels>),
    Disks(Disks),
}

impl Model {
    /// A device of this profile that has been idle; equal seeds give equal outliers. Fails if the
    /// profile contradicts itself. Bands are not swept: use [`DeviceProfile::variants`].
    pub fn new(profile: &DeviceProfile, seed: u64) -> Result<Model, ProfileError> {
        profile.check()?;
        let stated = &profile.model;
        let mut rng = Rng::new(seed);
        let server = match &stated.mechanics {
            Some(mechanics) => Server::Disks(Disks::new(mechanics, profile.capacity_bytes, stated.sync_us)),
            None => Server::Channels(Box::new(Channels::new(stated))),
        };
        let spindles = stated.mechanics.as_ref().map_or(1, |mechanics| mechanics.spindles);
        Ok(Model {
            server,
            cache: stated.write_cache.as_ref().map(Cache::new),
            limits: Limits::new(stated),
            writes: Streams::new(stated.append_streams),
            outliers: stated.outliers.iter().map(|rule| Rule::new(rule, &mut rng)).collect(),
            rng,
            freezes: Freezes::default(),
            seen: 0,
            spindles: u64::from(spindles),
            statistics: Statistics::default(),
        })
    }

    /// Adds outliers: `share` of the reads and writes, each drawn independently, take `time`; the
    /// others proceed beside them. A network volume's spikes are `spikes(0.01, 100 ms)`.
    pub fn spikes(&mut self, share: f64, time: Duration) {
        let us = time.as_secs_f64() * 1e6;
        for op in [Op::Read, Op::Write] {
            let rule = Outliers {
                op,
                min_bytes: 0,
                max_bytes: None,
                share: share.clamp(0.0, 1.0),
                from_us: us,
                to_us: us,
                spacing: None,
                blocks: Blocks::Request,
            };
            self.outliers.push(Rule::new(&rule, &mut self.rng));
        }
    }

    /// The device does nothing from `from` to `to`: requests submitted from now on are suspended or
    /// wait. Requests that were submitted before this call keep their completion.
    pub fn freeze(&mut self, from: Duration, to: Duration) {
        self.freezes.add(self.seen, from, to);
    }

    /// Submits a request at `now`; returns the moment of its completion, never before `now`.
    pub fn submit(&mut self, now: Duration, request: &Request) -> Duration {
        let now = self.arrive(now);
        Duration::from_nanos(self.complete(now, request, false))
    }

    /// Submits all requests at once; returns the moment at which each completes, in their order. A
    /// disk that reorders serves them in one sweep of its arm; every other device serves them as if
    /// they were submitted one after another at the same moment.
    pub fn submit_batch(&mut self, now: Duration, requests: &[Request]) -> Vec<Duration> {
        let now = self.arrive(now);
        let mut completions = vec![Duration::ZERO; requests.len()];
        let (order, swept) = match &self.server {
            Server::Disks(disks) => (disks.elevator(requests), requests.len() > 1),
            Server::Channels(_) => ((0..requests.len()).collect(), false),
        };
        for index in order {
            completions[index] = Duration::from_nanos(self.complete(now, &requests[index], swept));
        }
        completions
    }

    /// Counts since the model was made.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    fn arrive(&mut self, now: Duration) -> u64 {
        self.seen = self.seen.max(now.as_nanos().min(u128::from(u64::MAX / 4)) as u64);
        self.seen
    }

    /// The completion of one request, by the clock.
    fn complete(&mut self, now: u64, request: &Request, swept: bool) -> u64 {
        let own_now = self.freezes.own_time(now);
        let own_end = match request.kind {
            RequestKind::Sync => self.sync(own_now, request),
            _ => self.transfer(own_now, request, swept),
        };
        // A freeze that began between the last request and this one delays even requests that take
        // no time.
        let end = self.freezes.clock_time(own_end).max(now);
        self.count(request, end - now);
        assert!(end >= now, "nothing completes before it is submitted");
        end
    }

    fn sync(&mut self, now: u64, request: &Request) -> u64 {
        if let (Some(cache), Server::Channels(channels)) = (&self.cache, &self.server)
            && cache.takes(true)
        {
            // There is nothing to wait for: draining holds up no sync.
            return now.saturating_add(channels.sync_ns());
        }
        let safe = self.cache.as_mut().map_or(now, |cache| cache.safe_at(now));
        self.serve(safe, request, Course::Sequential, None, false).end
    }

    fn transfer(&mut self, now: u64, request: &Request, swept: bool) -> u64 {
        let admitted = self.limits.admit(now);
        let reads = request.kind == RequestKind::Read;
        let course = if reads { Course::Sequential } else { self.writes.meet(request) };
        let outlier = self.outlier(request);
        let durable = request.kind == RequestKind::DurableWrite;
        if self.cache.as_ref().is_some_and(|cache| !reads && cache.takes(durable)) {
            let taken = self.take_into_cache(admitted, request, course);
            let late = outlier.map_or(0, |met| crate::time::ns(met.us));
            return taken.max(self.limits.pass(admitted, request.bytes, false)).max(admitted + late);
        }
        let service = self.serve(admitted, request, course, outlier, swept);
        self.statistics.queued += Duration::from_nanos(service.start - now);
        if let (Some(cache), Server::Disks(_)) = (&mut self.cache, &self.server) {
            cache.put_off(admitted, service.busy / self.spindles);
        }
        service.end.max(self.limits.pass(service.start, request.bytes, reads))
    }

    /// The moment at which the cache acknowledges a write.
    fn take_into_cache(&mut self, now: u64, request: &Request, course: Course) -> u64 {
        let cache = self.cache.as_mut().expect("only a device with a cache takes writes into it");
        self.statistics.cached_writes += 1;
        let sequential = course != Course::Random;
        let written = match &mut self.server {
            Server::Channels(channels) => {
                let service = channels.drain(now, cache.drain_ns(request.bytes, sequential));
                self.statistics.busy += Duration::from_nanos(service.busy);
                service.end
            }
            Server::Disks(_) => cache.drained_at(now, request.bytes, sequential),
        };
        cache.take(now, request.bytes, written)
    }

    fn serve(
        &mut self,
        from: u64,
        request: &Request,
        course: Course,
        outlier: Option<Met>,
        swept: bool,
    ) -> Service {
        let service = match &mut self.server {
            Server::Channels(channels) => channels.serve(from, request, course, outlier, &mut self.rng),
            Server::Disks(disks) => disks.serve(from, request, swept, outlier),
        };
        assert!(from <= service.start && service.start <= service.end, "{service:?} from {from}");
        self.statistics.busy += Duration::from_nanos(service.busy);
        service
    }

    /// The longest of the outliers that the request meets. Every rule counts it.
    fn outlier(&mut self, request: &Request) -> Option<Met> {
        let rng = &mut self.rng;
        let met = self.outliers.iter_mut().filter_map(|rule| rule.meet(request, rng));
        let longest = met.max_by(|a, b| a.us.total_cmp(&b.us));
        self.statistics.outliers += u64::from(longest.is_some());
        longest
    }

    fn count(&mut self, request: &Request, latency: u64) {
        let statistics = &mut self.statistics;
        let kind = match request.kind {
            RequestKind::Read => &mut statistics.reads,
            RequestKind::Write => &mut statistics.writes,
            RequestKind::DurableWrite => &mut statistics.durable_writes,
            RequestKind::Sync => &mut statistics.syncs,
        };
        kind.count(request.bytes, latency);
    }
}
