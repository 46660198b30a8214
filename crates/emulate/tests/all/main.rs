//! The tests of this crate's public interface, in one program: each file is one promise or one way
//! to break it.

mod device_costs;
mod emulated;
mod figures;
mod mixes;
mod model;
mod nand_block_maps_merge;
mod nand_costs_lie_on_the_equations;
mod nand_devices_keep_time_and_data;
mod nand_translation_layers_keep_every_page;
mod nand_wear_levelling_narrows_the_spread;
mod papers;
mod profiles_name_flash;
