//! Tables for people: a line under the header, numbers to the right, no other rules.

use comfy_table::{CellAlignment, Table, TableComponent, presets};

/// A table with these headers; `left` of its columns, from the first, hold words.
pub fn new(headers: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(headers);
    table
        .set_style(TableComponent::HeaderLines, '─')
        .set_style(TableComponent::MiddleHeaderIntersections, '─');
    table
}

/// The table's text, the columns from the `words`th on aligned to the right.
pub fn text(mut table: Table, words: usize) -> String {
    for column in table.column_iter_mut().skip(words) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}
