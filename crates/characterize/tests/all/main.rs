//! The tests of this crate's public interface, in one program: each file is one promise or one way
//! to break it.

mod a_device_of_known_making_is_recognised;
mod how_much_of_a_device_a_stream_occupies;
mod nothing_of_the_owners_is_touched;
mod rates_follow_from_latency_and_depth;
mod recognition;
