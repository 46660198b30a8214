//! Log devices join, leave and fail.

mod come_and_go;
