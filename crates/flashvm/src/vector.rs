//! A vector whose elements lie in managed memory: it grows by moving pages, not bytes.
//!
//! Unsafe code: the first `len` places are written, the others are not; there are `capacity` places in the pages. Every method keeps
//! both before it calls code of `T`.
#![allow(unsafe_code, reason = "elements are memory until they are written")]

use crate::pages::{PAGE, Pages, Source};
use crate::{Error, Result};
use std::marker::PhantomData;
use std::ptr::NonNull;

/// A vector over any source of pages.
#[derive(Debug)]
pub(crate) struct Column<T, S: Source> {
    pages: Option<Pages<S>>,
    len: usize,
    elements: PhantomData<T>,
}

impl<T, S: Source> Column<T, S> {
    pub(crate) const fn new() -> Self {
        Self {
            pages: None,
            len: 0,
            elements: PhantomData,
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        let bytes = self.pages.as_ref().map_or(0, Pages::bytes);
        bytes.checked_div(size_of::<T>()).unwrap_or(usize::MAX)
    }

    fn start(&self) -> NonNull<T> {
        let pages = self.pages.as_ref();
        pages.map_or(NonNull::dangling(), |pages| pages.start().cast())
    }

    /// Makes room for `additional` elements: for twice as many as before, or for just these if there is no room for more.
    pub(crate) fn reserve(&mut self, source: S, additional: usize) -> Result<()> {
        if additional <= self.capacity() - self.len {
            return Ok(());
        }
        if align_of::<T>() > PAGE {
            let align = align_of::<T>();
            return Err(Error::Invalid(format!(
                "elements aligned to {align} bytes: managed memory is aligned to {PAGE}"
            )));
        }
        let count = self.len.saturating_add(additional);
        let needed = count.saturating_mul(size_of::<T>());
        let Some(pages) = &mut self.pages else {
            self.pages = Some(Pages::map(source, needed)?);
            return Ok(());
        };
        let twice = pages.bytes().saturating_mul(2);
        if twice > needed && pages.resize(twice).is_ok() {
            return Ok(());
        }
        pages.resize(needed)
    }

    /// Adds an element, for which there is a place.
    pub(crate) fn push(&mut self, value: T) {
        assert!(self.len < self.capacity(), "a place was reserved");
        // SAFETY: there are more places than elements.
        unsafe { self.start().add(self.len).write(value) };
        self.len += 1;
    }

    /// Copies elements, for which there are places.
    pub(crate) fn extend_from_slice(&mut self, values: &[T])
    where
        T: Copy,
    {
        assert!(values.len() <= self.capacity() - self.len, "reserved");
        // SAFETY: there are so many places beyond the elements, which no reference to elements overlaps.
        unsafe {
            let end = self.start().add(self.len);
            end.copy_from_nonoverlapping(NonNull::from(values).cast(), values.len());
        }
        self.len += values.len();
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        self.len = self.len.checked_sub(1)?;
        // SAFETY: the element was written, and is beyond the last one now.
        Some(unsafe { self.start().add(self.len).read() })
    }

    /// Drops all elements from `len` on.
    pub(crate) fn truncate(&mut self, len: usize) {
        let Some(gone) = self.len.checked_sub(len) else {
            return;
        };
        self.len = len;
        // SAFETY: these elements were written, and are beyond the last one now. If one panics in its destructor, none is dropped twice.
        unsafe {
            let first = self.start().add(len);
            NonNull::slice_from_raw_parts(first, gone).drop_in_place();
        }
    }

    /// Gives the pages beyond the last element back.
    pub(crate) fn shrink(&mut self) -> Result<()> {
        let bytes = self.len * size_of::<T>();
        match &mut self.pages {
            Some(pages) if bytes > 0 => pages.resize(bytes),
            pages => {
                *pages = None;
                Ok(())
            }
        }
    }

    pub(crate) fn as_slice(&self) -> &[T] {
        // SAFETY: so many elements were written, and `self` owns them.
        unsafe { std::slice::from_raw_parts(self.start().as_ptr(), self.len) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as `as_slice`; `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start().as_ptr(), self.len) }
    }
}

impl<T, S: Source> Drop for Column<T, S> {
    fn drop(&mut self) {
        self.truncate(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::testing::Memory;
    use proptest::prelude::*;
    use std::rc::Rc;

    #[derive(Clone, Debug)]
    enum Step {
        Push(u32),
        Extend(Vec<u32>),
        Pop,
        Truncate(usize),
        Reserve(usize),
        Shrink,
        Set(usize, u32),
        Limit(usize),
    }

    fn steps() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => any::<u32>().prop_map(Step::Push),
            4 => proptest::collection::vec(any::<u32>(), 0..3000).prop_map(Step::Extend),
            2 => Just(Step::Pop),
            2 => (0_usize..5000).prop_map(Step::Truncate),
            2 => prop_oneof![0_usize..5000, Just(usize::MAX)].prop_map(Step::Reserve),
            2 => Just(Step::Shrink),
            4 => (any::<usize>(), any::<u32>()).prop_map(|(at, value)| Step::Set(at, value)),
            1 => (1_usize..30).prop_map(|pages| Step::Limit(pages * PAGE)),
        ]
    }

    /// Whether there is room; without it the column is as before.
    fn reserve<'m>(column: &mut Column<u32, &'m Memory>, memory: &'m Memory, count: usize) -> bool {
        let (before, capacity) = (column.as_slice().to_vec(), column.capacity());
        match column.reserve(memory, count) {
            Ok(()) => true,
            Err(error) => {
                assert!(matches!(error, Error::NoRoom { .. }), "{error}");
                assert_eq!(column.as_slice(), before);
                assert_eq!(column.capacity(), capacity);
                false
            }
        }
    }

    fn run(steps: Vec<Step>) {
        let memory = Memory::new(30 * PAGE);
        let mut column = Column::new();
        let mut model = Vec::new();
        for step in steps {
            match step {
                Step::Push(value) => {
                    if reserve(&mut column, &memory, 1) {
                        column.push(value);
                        model.push(value);
                    }
                }
                Step::Extend(values) => {
                    if reserve(&mut column, &memory, values.len()) {
                        column.extend_from_slice(&values);
                        model.extend(values);
                    }
                }
                Step::Pop => assert_eq!(column.pop(), model.pop()),
                Step::Truncate(len) => {
                    column.truncate(len);
                    model.truncate(len);
                }
                Step::Reserve(count) => {
                    let enough = reserve(&mut column, &memory, count);
                    assert!(!enough || column.capacity() - model.len() >= count);
                }
                Step::Shrink => column.shrink().expect("less fits"),
                Step::Set(at, value) if !model.is_empty() => {
                    let at = at % model.len();
                    column.as_mut_slice()[at] = value;
                    model[at] = value;
                }
                Step::Set(..) => {}
                Step::Limit(bytes) => memory.limit.set(bytes.max(memory.mapped.get())),
            }
            assert_eq!(column.as_slice(), model);
        }
        drop(column);
        assert_eq!(memory.mapped.get(), 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 3 } else { 256 }))]

        #[test]
        fn a_column_is_a_vector(steps in proptest::collection::vec(steps(), 0..60)) {
            run(steps);
        }
    }

    #[test]
    fn elements_are_dropped_once() {
        let memory = Memory::new(4 * PAGE);
        let counted = Rc::new(());
        let mut column = Column::new();
        column.reserve(&memory, 3).expect("room");
        (0..3).for_each(|_| column.push(Rc::clone(&counted)));
        drop(column.pop());
        column.truncate(1);
        assert_eq!(Rc::strong_count(&counted), 2);
        drop(column);
        assert_eq!(Rc::strong_count(&counted), 1);
    }

    #[test]
    fn elements_without_bytes_take_no_memory() {
        let memory = Memory::new(0);
        let mut column = Column::new();
        column.reserve(&memory, 1 << 40).expect("no memory");
        (0..1000).for_each(|_| column.push(()));
        assert_eq!(column.as_slice().len(), 1000);
        assert_eq!(column.pop(), Some(()));
    }

    #[test]
    fn elements_that_pages_do_not_align_are_refused() {
        #[repr(align(8192))]
        struct Aligned;
        let memory = Memory::new(PAGE);
        let mut column = Column::<[Aligned; 1], &Memory>::new();
        // Without bytes any address that is aligned will do, and none is needed.
        column.reserve(&memory, 1).expect("no memory");
        let mut column = Column::<(Aligned, u8), &Memory>::new();
        let error = column.reserve(&memory, 1).expect_err("too much");
        assert!(error.to_string().contains("8192"), "{error}");
    }
}
