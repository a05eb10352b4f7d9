//! The program's interface inside an update or a view: [`Tx`] and [`View`].

use super::handles::{Handle, HandleTable};
use super::state::State;
use crate::brand::Brand;
use crate::object::Header;
use crate::persist::Persist;
use crate::pointer::{Addressed, Pointer};
use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;

/// A heap that is being read: see [`Heap::view`](crate::Heap::view).
#[derive(Debug)]
pub struct View<'t> {
    pub(super) state: &'t State,
    brand: PhantomData<Brand<'t>>,
}

/// A heap that is being changed: see [`Heap::update`](crate::Heap::update).
#[derive(Debug)]
pub struct Tx<'t> {
    pub(super) state: RefCell<&'t mut State>,
    brand: PhantomData<Brand<'t>>,
}

fn get<'t, P>(handles: &Arc<HandleTable>, handle: &Handle<P>) -> P::At<'t>
where
    P: Persist<'static>,
    P::At<'t>: Pointer<'t>,
{
    let address = handle.address(handles).expect("a handle of this heap");
    P::At::at_address(address)
}

impl<'t> View<'t> {
    pub(crate) fn new(state: &'t State) -> Self {
        Self {
            state,
            brand: PhantomData,
        }
    }

    /// The target of a handle.
    ///
    /// # Panics
    /// The handle belongs to another heap.
    pub fn get<P>(&self, handle: &Handle<P>) -> P::At<'t>
    where
        P: Persist<'static>,
        P::At<'t>: Pointer<'t>,
    {
        get::<P>(&self.state.handles, handle)
    }
}

impl<'t> Tx<'t> {
    pub(crate) fn new(state: &'t mut State) -> Self {
        Self {
            state: RefCell::new(state),
            brand: PhantomData,
        }
    }

    /// The target of a handle.
    ///
    /// # Panics
    /// The handle belongs to another heap.
    pub fn get<P>(&self, handle: &Handle<P>) -> P::At<'t>
    where
        P: Persist<'static>,
        P::At<'t>: Pointer<'t>,
    {
        get::<P>(&self.state.borrow().handles, handle)
    }

    /// A reference that outlives this update, across collections.
    pub fn hold<P: Pointer<'t>>(&self, target: P) -> Handle<P::At<'static>> {
        Handle::new(&self.state.borrow().handles, target.address())
    }

    /// A new object in new space.
    pub(crate) fn allocate(&self, header: Header, fill: impl FnOnce(&mut [u64])) -> u64 {
        self.state.borrow_mut().allocate(header, fill)
    }

    /// Replaces words of a mutable object of this heap.
    pub(crate) fn mutate(&self, object: u64, start: u64, words: &[u64], pointers: usize) {
        self.state
            .borrow_mut()
            .mutate(object, start, words, pointers);
    }
}
