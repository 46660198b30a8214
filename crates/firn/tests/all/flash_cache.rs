//! The flash cache in files: it comes, goes, and is lost.

mod comes_and_goes;
mod in_files;
mod is_rebuilt;
