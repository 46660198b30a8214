//! Damage is a matter of what it lies in, and of nothing else.

mod concerns_its_page;
