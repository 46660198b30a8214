//! Power cuts at any moment of a script, with images of what may be left.

mod creations;
mod images;
mod images_of_deltas;
mod images_of_shadows;
mod images_of_the_cache;
mod threads;
