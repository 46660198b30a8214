//! Traces of other programs: the text that `blkparse` prints of what `blktrace` recorded.
//!
//! ```text
//! blktrace -d /dev/sdb -o run && blkparse -i run > run.txt
//! ```
//!
//! Reads its default format, `%D %2c %8s %5T.%9t %5p %2a %3d` and what depends on the action
//! (blkparse(1)):
//!
//! ```text
//!   8,16   1       11     0.009507758   697  D  WS 223490 + 56 [kjournald]
//! ```
//!
//! device, processor, sequence, seconds, process, action, direction, first sector, `+`, sectors of
//! 512 bytes, process name. An operation has several lines; the reader returns those of one action,
//! and skips the lines of other actions and the summary at the end. A line of that action in
//! another format is an error that names its line number.

use firndb_device::trace::{TraceError, TraceEvent, TraceLines, TraceOp, number};
use std::io::BufRead;

/// The action for which lines are returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlkAction {
    /// `D`: issued to the driver.
    Issued,
    /// `C`: completed.
    Completed,
    /// `Q`: queued at the block layer, before it merges operations.
    Queued,
}

impl BlkAction {
    fn letter(self) -> &'static str {
        match self {
            BlkAction::Issued => "D",
            BlkAction::Completed => "C",
            BlkAction::Queued => "Q",
        }
    }
}

/// A block device as the kernel numbers them: major and minor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlkDevice(pub u32, pub u32);

impl std::str::FromStr for BlkDevice {
    type Err = String;

    /// Reads `8,16`.
    fn from_str(text: &str) -> Result<BlkDevice, String> {
        let pair =
            text.split_once(',').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        pair.map(|(major, minor)| BlkDevice(major, minor))
            .ok_or_else(|| format!("{text:?} is no device; write for example 8,16"))
    }
}

/// Bytes of a sector in blkparse's output, whatever the device's blocks are.
const SECTOR: u64 = 512;

/// Reads the output of `blkparse`. Ends at the first error.
#[derive(Debug)]
pub struct BlkparseReader<R> {
    lines: TraceLines<R>,
    action: BlkAction,
    device: Option<BlkDevice>,
    /// Whether the caller named the device; else it is the first that has an operation, and
    /// operations of others are errors.
    chosen: bool,
    ended: bool,
}

impl<R: BufRead> BlkparseReader<R> {
    /// Reads the operations of `device`, or of the only device that the trace has.
    pub fn new(input: R, action: BlkAction, device: Option<BlkDevice>) -> BlkparseReader<R> {
        BlkparseReader {
            lines: TraceLines::new(input),
            action,
            device,
            chosen: device.is_some(),
            ended: false,
        }
    }

    fn read(&mut self) -> Result<Option<TraceEvent>, TraceError> {
        loop {
            let Some(line) = self.lines.next_line()? else { return Ok(None) };
            let Some(first) = line.split_ascii_whitespace().next() else { continue };
            if is_summary(first) {
                return Ok(None);
            }
            let parsed = Line::parse(line, self.action);
            let (device, event) = match parsed {
                Ok(Some(found)) => found,
                Ok(None) => continue,
                Err(message) => return Err(self.lines.error(message)),
            };
            match self.device {
                None => self.device = Some(device),
                Some(wanted) if wanted == device => {}
                Some(_) if self.chosen => continue,
                Some(first) => {
                    return Err(self.lines.error(format!(
                        "this is an operation of device {},{} after some of {},{}: choose one of them",
                        device.0, device.1, first.0, first.1
                    )));
                }
            }
            return Ok(Some(event));
        }
    }
}

impl<R: BufRead> Iterator for BlkparseReader<R> {
    type Item = Result<TraceEvent, TraceError>;

    fn next(&mut self) -> Option<Result<TraceEvent, TraceError>> {
        if self.ended {
            return None;
        }
        let read = self.read().transpose();
        self.ended = !matches!(read, Some(Ok(_)));
        read
    }
}

/// Whether a line with this first field begins the summary: `CPU0 (sdb):` or, of one processor
/// only, `Total (sdb):`.
fn is_summary(first: &str) -> bool {
    first == "Total"
        || first.strip_prefix("CPU").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// A line of an operation.
struct Line;

impl Line {
    /// The device and operation of a line; `None` if it is of another action, or of an operation
    /// without data.
    fn parse(line: &str, action: BlkAction) -> Result<Option<(BlkDevice, TraceEvent)>, String> {
        let mut fields = line.split_ascii_whitespace();
        let mut field = |name: &str| fields.next().ok_or_else(|| format!("there is no {name}"));
        let device: BlkDevice = field("device")?.parse()?;
        number("processor", field("processor")?)?;
        number("sequence", field("sequence")?)?;
        let start_ns = nanoseconds(field("time")?)?;
        number("process", field("process")?)?;
        if field("action")? != action.letter() {
            return Ok(None);
        }
        let Some(op) = operation(field("direction")?)? else { return Ok(None) };
        let sector = fields.next();
        let plus = fields.next();
        let (offset, bytes) = match (op, plus) {
            (TraceOp::Sync, _) => (0, 0),
            (_, Some("+")) => {
                let sectors = number("count of sectors", fields.next().unwrap_or(""))?;
                bytes_of(number("first sector", sector.unwrap_or(""))?, sectors)?
            }
            _ => return Err("there is no first sector and count, as in \"223490 + 56\"".into()),
        };
        Ok(Some((device, TraceEvent { start_ns, duration_ns: 0, op, offset, bytes, failed: false })))
    }
}

fn bytes_of(sector: u64, sectors: u64) -> Result<(u64, u64), String> {
    let offset = sector.checked_mul(SECTOR);
    let bytes = sectors.checked_mul(SECTOR);
    match (offset, bytes) {
        (Some(offset), Some(bytes)) if offset.checked_add(bytes).is_some() => Ok((offset, bytes)),
        _ => Err(format!("{sectors} sectors at {sector} end beyond 2^64 bytes")),
    }
}

/// `0.009507758` in nanoseconds.
fn nanoseconds(text: &str) -> Result<u64, String> {
    let parts = text.split_once('.').filter(|(_, fraction)| fraction.len() == 9);
    let nanoseconds = parts.and_then(|(seconds, fraction)| {
        let fraction: u64 = fraction.bytes().all(|b| b.is_ascii_digit()).then(|| fraction.parse().ok())??;
        seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(fraction)
    });
    nanoseconds.ok_or_else(|| {
        format!("the time is {text:?}; it must be seconds with nine places, as in 0.009507758")
    })
}

/// What the letters of direction mean (kernel, `blk_fill_rwbs`): `F` before the direction is a
/// flush, behind it forced unit access; `R`, `W`, `D` (discard), `N` (none); `A`, `S`, `M` are
/// hints.
fn operation(letters: &str) -> Result<Option<TraceOp>, String> {
    let (flush, rest) = match letters.strip_prefix('F') {
        Some(rest) => (true, rest),
        None => (false, letters),
    };
    // `DE` and `DS`, `W`, `R`, `N`; a flush alone is `F`, `FN` or, from newer kernels, `FF`.
    let durable = rest.get(1..).is_some_and(|hints| hints.contains('F'));
    match rest.bytes().next() {
        Some(b'R') => Ok(Some(TraceOp::Read)),
        Some(b'W') if durable => Ok(Some(TraceOp::DurableWrite)),
        Some(b'W') => Ok(Some(TraceOp::Write)),
        Some(b'D') => Ok(Some(TraceOp::Discard)),
        Some(b'N' | b'F') | None if flush => Ok(Some(TraceOp::Sync)),
        Some(b'N') => Ok(None),
        _ => Err(format!("{letters:?} is no direction; these begin with R, W, D, F or N")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
  8,16   1        1     0.000000000   697  Q  WS 223490 + 8 [kjournald]
  8,16   1        2     0.000001829   697  G  WS 223490 + 8 [kjournald]
  8,16   1        3     0.000003000   697  P   N [kjournald]
  8,16   1        4     0.000009072   697  D  WS 223490 + 8 [kjournald]
  8,16   1        0     0.000010000     0  m   N cfq697S / insert_request
  8,16   0        1     0.000500000     0  C  WS 223490 + 8 [0]
  8,16   0        2     1.000000001    12  D   R 0 + 256 [a name with + and 7]
  8,16   0        3     1.100000000    12  D FWFS 16 + 8 [x]
  8,16   0        4     1.200000000    12  D  FN [kworker/0:1H]
  8,16   0        5     1.300000000    12  D  DS 1024 + 2048 [fstrim]
  8,16   0        6     1.400000000    12  U   N [x] 1

CPU0 (sdb):
 Reads Queued:           1,        4KiB  Writes Queued:           1,        4KiB
Total (sdb):
";

    fn read(text: &str, action: BlkAction, device: Option<&str>) -> Result<Vec<TraceEvent>, TraceError> {
        let device = device.map(|text| text.parse().expect("a device"));
        BlkparseReader::new(text.as_bytes(), action, device).collect()
    }

    #[test]
    fn operations_of_the_chosen_action_are_read() {
        let issued = read(TEXT, BlkAction::Issued, None).expect("sound");
        let issued: Vec<_> = issued.iter().map(|it| (it.start_ns, it.op, it.offset, it.bytes)).collect();
        let expected = [
            (9072, TraceOp::Write, 223_490 * 512, 4096),
            (1_000_000_001, TraceOp::Read, 0, 131_072),
            (1_100_000_000, TraceOp::DurableWrite, 8192, 4096),
            (1_200_000_000, TraceOp::Sync, 0, 0),
            (1_300_000_000, TraceOp::Discard, 524_288, 1_048_576),
        ];
        assert_eq!(issued, expected);
        let completed = read(TEXT, BlkAction::Completed, Some("8,16")).expect("sound");
        assert_eq!(completed.len(), 1);
        assert_eq!(completed[0].start_ns, 500_000);
        assert_eq!(read(TEXT, BlkAction::Queued, Some("8,0")), Ok(vec![]));
    }

    #[test]
    fn malformed_lines_are_refused_with_their_number() {
        let good = "8,0 0 1 0.000000001 1 D R 0 + 8 [x]";
        for (line, part) in [
            ("what is this", "no device"),
            ("8,0 x 1 0.000000001 1 D R 0 + 8 [x]", "processor"),
            ("8,0 0 1 0.1 1 D R 0 + 8 [x]", "nine places"),
            ("8,0 0 1 0.00000000x 1 D R 0 + 8 [x]", "nine places"),
            ("8,0 0 1 99999999999999.000000000 1 D R 0 + 8 [x]", "nine places"),
            ("8,0 0 1 0.000000001", "no process"),
            ("8,0 0 1 0.000000001 1 D", "no direction"),
            ("8,0 0 1 0.000000001 1 D X 0 + 8", "no direction"),
            ("8,0 0 1 0.000000001 1 D R", "first sector and count"),
            ("8,0 0 1 0.000000001 1 D R 5 [x]", "first sector and count"),
            ("8,0 0 1 0.000000001 1 D R 5 +", "count of sectors"),
            ("8,0 0 1 0.000000001 1 D R -5 + 8", "first sector"),
            ("8,0 0 1 0.000000001 1 D R 36028797018963967 + 8", "beyond 2^64"),
            ("8,1 0 1 0.000000001 1 D R 0 + 8 [x]", "choose one"),
        ] {
            let error =
                read(&format!("{good}\n\n{line}\n{good}\n"), BlkAction::Issued, None).expect_err(line);
            assert_eq!(error.line, 3, "{line}: {error}");
            assert!(error.message.contains(part), "{line}: {error}");
        }
        let two = format!("{good}\n8,1 0 1 0.000000001 1 D R 0 + 8 [x]\n");
        assert_eq!(read(&two, BlkAction::Issued, Some("8,1")).map(|all| all.len()), Ok(1));
    }
}
