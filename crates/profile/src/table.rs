//! Times by request size.

use serde::{Deserialize, Serialize};

/// Service time of one request, in microseconds, by its size in bytes: `[[512, 90.0], [4096,
/// 100.0]]`.
///
/// Between two points the time is linear. Below the first point it is the first point's: a smaller
/// request is not faster. Above the last point it continues the line through the last two; a single
/// point grows in proportion to the size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ServiceTable {
    /// (bytes, microseconds), ascending in bytes, never falling in time.
    pub points: Vec<(u64, f64)>,
}

impl ServiceTable {
    /// The table of these (bytes, microseconds).
    #[must_use]
    pub fn new(points: impl Into<Vec<(u64, f64)>>) -> ServiceTable {
        ServiceTable { points: points.into() }
    }

    /// Whether it has no point at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Microseconds for a request of `bytes`. Zero if the table is empty.
    #[must_use]
    pub fn us(&self, bytes: u64) -> f64 {
        let above = self.points.partition_point(|&(size, _)| size < bytes);
        let line = |(x0, y0): (u64, f64), (x1, y1): (u64, f64)| {
            y0 + (y1 - y0) * (bytes as f64 - x0 as f64) / (x1 as f64 - x0 as f64)
        };
        match self.points.as_slice() {
            [] => 0.0,
            points if above == 0 => points[0].1,
            [(size, us)] => us * bytes as f64 / *size as f64,
            points if above == points.len() => line(points[above - 2], points[above - 1]),
            points => line(points[above - 1], points[above]),
        }
    }

    /// All times multiplied by `factor`.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> ServiceTable {
        ServiceTable { points: self.points.iter().map(|&(bytes, us)| (bytes, us * factor)).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::ServiceTable;

    #[test]
    fn times_are_linear_between_points_flat_below_and_extended_above() {
        let table = ServiceTable::new([(512, 100.0), (4096, 100.0), (8192, 300.0)]);
        for (bytes, us) in
            [(1, 100.0), (512, 100.0), (4096, 100.0), (6144, 200.0), (8192, 300.0), (12_288, 500.0)]
        {
            assert_eq!(table.us(bytes), us, "{bytes} bytes");
        }
    }

    #[test]
    fn a_single_point_grows_in_proportion_and_an_empty_table_costs_nothing() {
        let table = ServiceTable::new([(4096, 100.0)]);
        assert_eq!((table.us(512), table.us(4096), table.us(16_384)), (100.0, 100.0, 400.0));
        assert_eq!(ServiceTable::default().us(4096), 0.0);
    }

    #[test]
    fn a_table_that_never_falls_is_monotone_everywhere() {
        let table = ServiceTable::new([(512, 80.0), (4096, 81.0), (65_536, 900.0), (1 << 20, 9000.0)]);
        let times: Vec<f64> = (0..4096).map(|i| table.us(i * 512)).collect();
        assert!(times.windows(2).all(|pair| pair[0] <= pair[1]));
    }
}
