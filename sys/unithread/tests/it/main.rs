//! Unithreads as their users see them, what a switch keeps, and what an overflow does.

mod overflow;
mod registers;
mod switching;
