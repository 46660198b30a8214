//! What threads saw of each other, judged by its serialization graph.

mod checker_sees_failure;
mod hold_no_forbidden_cycle;
