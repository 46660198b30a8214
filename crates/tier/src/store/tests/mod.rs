//! Tests of the store as a whole.
