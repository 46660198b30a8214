//! Random work with a model beside it.

mod agrees_with_a_sorted_map;
mod explained_by_commit_order;
