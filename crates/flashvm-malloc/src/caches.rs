//! A cache of free objects for each thread: most calls take no lock and execute no atomic
//! read-modify-write.
//!
//! The thread pointer identifies a thread's cache. In a shared object thread-local storage would
//! cost a call, and it may itself be managed memory.

use crate::Misuse;
use crate::arenas::Arenas;
use crate::classes::{CLASSES, Class, Classes};
use crate::columns::CacheId;
use std::alloc::Layout;
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Free objects of a class in a cache: CACHED_BYTES / bytes of an object, clamped to 64..=512.
const CACHED_BYTES: usize = 128 << 10;
const CACHED_MIN: usize = 64;
const CACHED_MAX: usize = 512;
/// Threads that can have a cache at the same time; further threads have none.
const CACHES: usize = 1024;

/// Most objects of a class in a cache. Half of them move at once.
#[inline]
fn capacity(classes: Classes, class: Class) -> usize {
    (CACHED_BYTES >> classes.object_shift(class)).clamp(CACHED_MIN, CACHED_MAX)
}

/// The free objects of one thread.
struct Cache {
    /// The thread pointer of its thread; 0: it has none.
    thread: AtomicUsize,
    number: CacheId,
    arenas: &'static Arenas,
    /// By class. Only the cache's thread uses them.
    bins: UnsafeCell<[Bin; CLASSES]>,
}

struct Bin {
    len: usize,
    objects: [usize; CACHED_MAX],
}

impl Cache {
    /// A cache without a thread, built in place: the calling thread's stack may be too small for
    /// it.
    fn new(arenas: &'static Arenas) -> NonNull<Self> {
        let layout = Layout::new::<Self>();
        // SAFETY: The layout is not empty. Zeros are valid as bins (empty) and as `thread` (none);
        // the two other fields are written here.
        unsafe {
            let Some(cache) = NonNull::new(std::alloc::alloc_zeroed(layout).cast::<Self>()) else {
                std::alloc::handle_alloc_error(layout)
            };
            (&raw mut (*cache.as_ptr()).number).write(arenas.number_cache());
            (&raw mut (*cache.as_ptr()).arenas).write(arenas);
            cache
        }
    }

    /// The bin of a class.
    ///
    /// # Safety
    /// The cache is the calling thread's, or its thread no longer runs. No other reference
    /// to the bin is in use. A page source makes none, as it does not call the allocator back: see
    /// [`crate::PageSource`].
    #[expect(clippy::mut_from_ref, reason = "the caller vouches for the only use")]
    #[inline]
    unsafe fn bin(&self, class: Class) -> &mut Bin {
        // SAFETY: the caller guarantees that no other thread and no other reference uses the bin.
        unsafe { &mut (*self.bins.get())[class.number()] }
    }

    /// Returns all objects.
    ///
    /// # Safety
    /// As [`Cache::bin`], for all of them.
    unsafe fn empty(&self) {
        for class in Class::ALL {
            // SAFETY: the caller guarantees the only use of all bins; each reference ends with its
            // turn of the loop.
            let bin = unsafe { self.bin(class) };
            self.arenas.put_back(class, &mut bin.objects[..bin.len]);
            bin.len = 0;
        }
    }
}

/// The caches of all threads, and the arenas behind them.
#[derive(Debug)]
pub(crate) struct Caches {
    arenas: Arenas,
    /// A thread's cache is sought from a hash of its thread pointer on. A cache in a slot is never
    /// freed, only passed to another thread.
    slots: [AtomicPtr<Cache>; CACHES],
    /// Its destructor reports the end of a thread.
    key: libc::pthread_key_t,
}

impl Caches {
    /// No caches yet. `None`: the process has no keys of thread-specific data left.
    pub(crate) fn new(arenas: Arenas) -> Option<Self> {
        let mut key = 0;
        // SAFETY: The destructor takes the value that `find` sets, which lives as long as the
        // process.
        let failed = unsafe { libc::pthread_key_create(&raw mut key, Some(thread_ends)) };
        (failed == 0).then_some(Self {
            arenas,
            slots: [const { AtomicPtr::new(null_mut()) }; CACHES],
            key,
        })
    }

    #[inline]
    pub(crate) fn arenas(&self) -> &Arenas {
        &self.arenas
    }

    /// A free object. `None`: there is no room.
    #[inline]
    pub(crate) fn allocate(&'static self, class: Class) -> Option<usize> {
        let (object, number) = match self.own() {
            Some(cache) => {
                // SAFETY: `own` returned the calling thread's cache, and this is the only
                // reference: the page source behind `refill` does not call the allocator back.
                let bin = unsafe { cache.bin(class) };
                if bin.len == 0 {
                    let half = capacity(self.arenas.columns().classes(), class) / 2;
                    let objects = &mut bin.objects[..half];
                    bin.len = self.arenas.refill(class, cache.number, objects);
                }
                bin.len = bin.len.checked_sub(1)?;
                (bin.objects[bin.len], cache.number)
            }
            None => {
                let mut one = [0];
                let got = self.arenas.refill(class, CacheId::NONE, &mut one);
                (got > 0).then_some((one[0], CacheId::NONE))?
            }
        };
        let was_free = self.arenas.columns().give(object, class, number);
        debug_assert!(was_free, "a free object is handed out once");
        Some(object)
    }

    /// Frees an object.
    #[inline]
    pub(crate) fn release(&'static self, object: usize) -> Result<(), Misuse> {
        let columns = self.arenas.columns();
        let Some(cache) = self.own() else {
            let class = columns.take_back(object, CacheId::NONE)?;
            self.arenas.put_back(class, &mut [object]);
            return Ok(());
        };
        let class = columns.take_back(object, cache.number)?;
        // SAFETY: `own` returned the calling thread's cache, and this is the only reference: the
        // page source behind `put_back` does not call the allocator back.
        let bin = unsafe { cache.bin(class) };
        if bin.len == capacity(columns.classes(), class) {
            // The older half goes: recently freed objects are warm.
            let half = bin.len / 2;
            self.arenas.put_back(class, &mut bin.objects[..half]);
            bin.objects.copy_within(half..bin.len, 0);
            bin.len -= half;
        }
        bin.objects[bin.len] = object;
        bin.len += 1;
        Ok(())
    }

    /// The calling thread's cache. `None`: all are in use.
    #[inline]
    fn own(&'static self) -> Option<&'static Cache> {
        let thread = thread_pointer();
        let cache = self.slots[first_slot(thread)].load(Ordering::Acquire);
        // SAFETY: a slot holds null or a cache, and a cache in a slot is never freed.
        match unsafe { cache.as_ref() } {
            Some(cache) if cache.thread.load(Ordering::Relaxed) == thread => Some(cache),
            _ => self.find(thread),
        }
    }

    #[cold]
    fn find(&'static self, thread: usize) -> Option<&'static Cache> {
        let slots = || (0..CACHES).map(|step| &self.slots[(first_slot(thread) + step) % CACHES]);
        for slot in slots() {
            // SAFETY: the slot holds null or a cache that `fill` has put there, which is never freed.
            let Some(cache) = (unsafe { slot.load(Ordering::Acquire).as_ref() }) else {
                break;
            };
            if cache.thread.load(Ordering::Relaxed) == thread {
                return Some(cache);
            }
        }
        let taken = slots().find_map(|slot| {
            let cache = NonNull::new(slot.load(Ordering::Acquire));
            let cache = cache.unwrap_or_else(|| self.fill(slot));
            // SAFETY: the pointer is not null, so it is a cache that `fill` has put into the slot; it is never freed.
            let cache: &'static Cache = unsafe { cache.as_ref() };
            let order = Ordering::AcqRel;
            let taken = cache
                .thread
                .compare_exchange(0, thread, order, Ordering::Relaxed);
            taken.is_ok().then_some(cache)
        })?;
        // SAFETY: `new` made the key, whose destructor takes a pointer to a cache; this one is
        // never freed.
        unsafe { libc::pthread_setspecific(self.key, std::ptr::from_ref(taken).cast()) };
        Some(taken)
    }

    /// Puts a new cache into an empty slot, unless another thread is faster; returns the slot's
    /// cache.
    fn fill(&'static self, slot: &AtomicPtr<Cache>) -> NonNull<Cache> {
        let new = Cache::new(&self.arenas);
        let (empty, order) = (null_mut(), Ordering::AcqRel);
        match slot.compare_exchange(empty, new.as_ptr(), order, Ordering::Acquire) {
            Ok(_) => new,
            Err(other) => {
                // SAFETY: allocated above with this layout, and known to no other thread. Nothing in it needs a drop.
                unsafe { std::alloc::dealloc(new.as_ptr().cast(), Layout::new::<Cache>()) };
                NonNull::new(other).expect("a slot never becomes empty again")
            }
        }
    }

    /// In a forked child: returns the cached objects of the parent's other threads to the arenas.
    ///
    /// # Safety
    /// No other thread uses the caches, now or later, unless it starts after this call.
    pub(crate) unsafe fn only_this_thread(&self) {
        let own = thread_pointer();
        for slot in &self.slots {
            // SAFETY: the slot holds null or a cache that `fill` has put there; this process has its own copy, which is
            // never freed.
            let Some(cache) = (unsafe { slot.load(Ordering::Acquire).as_ref() }) else {
                continue;
            };
            let thread = cache.thread.load(Ordering::Relaxed);
            if thread != own && thread != 0 {
                // SAFETY: the caller guarantees that no other thread uses the caches, and this one
                // uses its own only.
                unsafe { cache.empty() };
                cache.thread.store(0, Ordering::Release);
            }
        }
    }
}

/// A thread ends: returns its cached objects to the arenas.
unsafe extern "C" fn thread_ends(cache: *mut c_void) {
    // SAFETY: The C library passes the value that `find` set: the cache of the ending thread, which
    // runs this and uses no other reference to it.
    unsafe {
        let cache = &*cache.cast::<Cache>();
        cache.empty();
        cache.thread.store(0, Ordering::Release);
    }
}

/// The identity of a thread: its thread pointer.
#[cfg(target_arch = "x86_64")]
#[inline]
fn thread_pointer() -> usize {
    let pointer;
    // SAFETY: On x86-64 the first word of a thread's control object is the object's own address.
    unsafe {
        std::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, pure, readonly, preserves_flags));
    }
    pointer
}

/// The identity of a thread, by a call of the C library.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn thread_pointer() -> usize {
    // SAFETY: the call has no preconditions.
    unsafe { libc::pthread_self() as usize }
}

/// The slot at which the search for a thread's cache starts. Thread control blocks are aligned to
/// 64 bytes, so the low 6 bits say nothing.
#[inline]
fn first_slot(thread: usize) -> usize {
    (thread as u64 >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize
        >> (usize::BITS - CACHES.ilog2())
}
