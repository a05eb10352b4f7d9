//! The object that `flashvm run` preloads into a program: its memory calls go to the pager.
//!
//! It replaces library symbols, so that an unmodified, dynamically linked program finds them
//! first: the allocator's, the mapping calls, fork and exec, and the calls that would close
//! descriptors of the pager. A constructor starts the pager before the program's own code runs.
#![allow(
    unsafe_code,
    reason = "C symbols with C contracts: each wrapper passes on what its caller vouches for"
)]

mod preload;
