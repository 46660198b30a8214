//! Bits, devices, files and arguments that are wrong: results are right, or errors say why.

mod arguments_are_refused;
mod bits_are_noticed;
mod devices_tell_no_lies;
mod files;
mod files_are_refused;
mod interrupted_creations;
mod one_file_for_two;
mod options_are_refused;
mod tables_of_another_database_are_refused;
