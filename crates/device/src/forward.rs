//! Devices that wrap another one, and do something of their own in a few calls.

/// Within `impl Device for Wrapper`: the methods named pass the call on to a field, a device or a
/// pointer to one.
///
/// ```
/// use firndb_base::sync::Arc;
/// use firndb_device::{Device, DeviceError, DeviceErrorKind, Durability, forward};
///
/// #[derive(Debug)]
/// struct ReadOnly {
///     inner: Arc<dyn Device>,
/// }
///
/// impl Device for ReadOnly {
///     forward!(inner: info, len, read, sync, grow, shrink, discard);
///     fn write(&self, offset: u64, _: &[u8], _: Durability) -> Result<(), DeviceError> {
///         Err(DeviceError::new(DeviceErrorKind::Failed, format!("offset {offset}: this device is only read")))
///     }
/// }
/// ```
///
/// `submit` is named where batches are to stay batches; left out, each transfer is a read or a
/// write. So is `reads`, for `begin_read` and `next_read`, where reads are to complete one by one.
/// `read_otherwise` stands for `hides_late_reads`, too: for what is known of copies.
#[macro_export]
macro_rules! forward {
    ($field:tt: $($method:ident),+ $(,)?) => { $($crate::forward!(@ $field $method);)+ };
    (@ $field:tt info) => {
        fn info(&self) -> &$crate::DeviceInfo {
            self.$field.info()
        }
    };
    (@ $field:tt len) => {
        fn len(&self) -> u64 {
            self.$field.len()
        }
    };
    (@ $field:tt read) => {
        fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), $crate::DeviceError> {
            self.$field.read(offset, buf)
        }
    };
    (@ $field:tt write) => {
        fn write(
            &self,
            offset: u64,
            data: &[u8],
            durability: $crate::Durability,
        ) -> Result<(), $crate::DeviceError> {
            self.$field.write(offset, data, durability)
        }
    };
    (@ $field:tt sync) => {
        fn sync(&self) -> Result<(), $crate::DeviceError> {
            self.$field.sync()
        }
    };
    (@ $field:tt submit) => {
        fn submit(&self, batch: &mut [$crate::Io<'_>]) {
            self.$field.submit(batch);
        }
    };
    (@ $field:tt reads) => {
        fn begin_read(&self, in_flight: &mut $crate::InFlight, read: $crate::OwnedRead) {
            self.$field.begin_read(in_flight, read);
        }
        fn begin_reads(
            &self,
            in_flight: &mut $crate::InFlight,
            reads: &mut dyn Iterator<Item = $crate::OwnedRead>,
        ) {
            self.$field.begin_reads(in_flight, reads);
        }
        fn next_read(
            &self,
            in_flight: &mut $crate::InFlight,
            until: Option<$crate::forward::Moment>,
        ) -> Option<$crate::ReadDone> {
            self.$field.next_read(in_flight, until)
        }
    };
    (@ $field:tt read_otherwise) => {
        fn hides_late_reads(&self) -> bool {
            self.$field.hides_late_reads()
        }
        fn read_otherwise(
            &self,
            offset: u64,
            buf: &mut [u8],
            right: &mut dyn FnMut(&[u8]) -> bool,
        ) -> bool {
            self.$field.read_otherwise(offset, buf, right)
        }
    };
    (@ $field:tt grow) => {
        fn grow(&self, len: u64, fill: $crate::Fill) -> Result<(), $crate::DeviceError> {
            self.$field.grow(len, fill)
        }
    };
    (@ $field:tt shrink) => {
        fn shrink(&self, len: u64) -> Result<(), $crate::DeviceError> {
            self.$field.shrink(len)
        }
    };
    (@ $field:tt discard) => {
        fn discard(&self, offset: u64, len: u64) -> Result<(), $crate::DeviceError> {
            self.$field.discard(offset, len)
        }
    };
}

/// What the macro names, so that its users need not depend on that crate.
pub use firndb_base::clock::Moment;
