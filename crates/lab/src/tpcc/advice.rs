//! More DRAM or more flash, for people.

use firndb::{MemoryCosts, MemoryUse, Verdict};
use firndb_console::{size, table};

/// What more of either would save, as a table and a sentence.
pub fn of(memory: &MemoryUse, costs: &MemoryCosts) -> String {
    let advice = memory.advise(costs);
    let headers =
        ["more DRAM", "reads save", "flash for that money", "reads save", "flash as good", "by formula"];
    let mut rows = table::new(&headers);
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    for purchase in &advice.purchases {
        rows.add_row([
            size::show(purchase.dram_bytes),
            percent(purchase.dram_saves),
            size::show(purchase.flash_bytes),
            percent(purchase.flash_saves),
            purchase.flash_for_dram.map_or_else(|| "-".to_owned(), size::show),
            size::show(purchase.formula_flash_for_dram as u64),
        ]);
    }
    let verdict = match advice.verdict {
        Verdict::Enough => "Neither would save much.",
        Verdict::MoreDram => "For the same money DRAM saves more.",
        Verdict::MoreFlash => "For the same money flash saves more.",
    };
    format!(
        "More DRAM or more flash? Of the time that {} misses of DRAM wait for reads ({:.0} µs from the store, {:.0} µs from flash;\n\
         a byte of DRAM at the price of {} of flash; DRAM now {}, flash {}):\n\n{}\n\n{verdict}",
        advice.misses,
        costs.store_read_us,
        costs.flash_read_us,
        costs.dram_price,
        size::show(memory.dram_pages * memory.page_size),
        size::show(memory.flash_pages * memory.page_size),
        table::text(rows, 0),
    )
}
