/* remap: mmap, munmap of parts, mremap, mprotect, madvise and MAP_FIXED in random order, compared
 * with a model of every page. The model is one tag a page, in unmanaged memory. Each thread has its
 * own mappings; the kernel places them side by side.
 */
#include "torture.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>

static const char *const PART = "remap";
enum {
	SLOTS = 24,	    /* mappings of a thread at most */
	PAGES_MAX = 1024,   /* pages of one mapping at most */
	MAYBE_ZERO = 1 << 31, /* in a tag: not written since MADV_FREE */
	DONTNEED_LOCKED = 24, /* MADV_DONTNEED_LOCKED, of Linux 5.18 */
};

struct mapping {
	uint8_t *at; /* NULL: the slot is free */
	size_t pages;
	uint32_t *tag; /* of each page; 0 is zeros */
};

struct world {
	struct mapping slot[SLOTS];
	struct rng r;
	uint32_t next_tag;
	size_t pages, pages_max;
};

static struct deadline until;
static int pattern_file; /* 64 pages, for MAP_FIXED of a file over managed memory */

/* ---- expected faults ---- */
static __thread sigjmp_buf *volatile probe;

static void on_segv(int number, siginfo_t *info, void *context)
{
	(void)context;
	if (!probe)
		fail(PART, info->si_addr, "no signal %d (code %d) outside of a probe", number,
		     info->si_code);
	siglongjmp(*probe, 1);
}

enum access { READ, WRITE };

/* Whether an access is refused. A write keeps the byte. */
static bool refused(volatile uint8_t *at, enum access access)
{
	sigjmp_buf here;
	if (sigsetjmp(here, 1)) {
		probe = NULL;
		return true;
	}
	probe = &here;
	uint8_t byte = *at;
	if (access == WRITE)
		*at = byte;
	probe = NULL;
	return false;
}

/* ---- the model ---- */
static void check_page(const struct mapping *m, size_t i)
{
	const uint8_t *page = m->at + i * PAGE;
	uint32_t tag = m->tag[i];
	if (tag & MAYBE_ZERO) {
		if (page_is_zero(page))
			return;
		tag &= ~(uint32_t)MAYBE_ZERO;
	}
	if (tag)
		page_check(PART, page, tag, tag);
	else
		zero_check(PART, page, i);
}

static void check_range(const struct mapping *m, size_t first, size_t count)
{
	for (size_t i = first; i < first + count; i++)
		check_page(m, i);
}

static void write_page(struct world *w, struct mapping *m, size_t i)
{
	m->tag[i] = ++w->next_tag & 0x7fffffff;
	page_stamp(m->at + i * PAGE, m->tag[i], m->tag[i]);
}

static struct mapping *free_slot(struct world *w)
{
	for (int k = 0; k < SLOTS; k++)
		if (!w->slot[k].at)
			return &w->slot[k];
	return NULL;
}

static void release(struct world *w, struct mapping *m)
{
	MUST(PART, munmap(m->at, m->pages * PAGE) == 0);
	w->pages -= m->pages;
	m->at = NULL;
}

static uint8_t *anonymous(void *at, size_t pages, int flags)
{
	uint8_t *p = mmap(at, pages * PAGE, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
	MUST(PART, p != MAP_FAILED);
	return p;
}

/* ---- operations; each updates memory and model ---- */
static void op_map(struct world *w)
{
	struct mapping *m = free_slot(w);
	size_t pages = rng_one_in(&w->r, 6) ? 1 + rng_below(&w->r, 15) : 16 + rng_below(&w->r, 300);
	if (!m || w->pages + pages > w->pages_max)
		return;
	static const int flags[] = {0, 0, MAP_NORESERVE, MAP_POPULATE, MAP_STACK};
	m->at = anonymous(NULL, pages, flags[rng_below(&w->r, 5)]);
	m->pages = pages;
	memset(m->tag, 0, pages * sizeof *m->tag);
	w->pages += pages;
	for (size_t i = 0; i < pages; i++)
		if (!rng_one_in(&w->r, 3))
			write_page(w, m, i);
}

static void op_touch(struct world *w, struct mapping *m, size_t first, size_t count)
{
	for (size_t i = first; i < first + count; i++) {
		check_page(m, i);
		if (rng_one_in(&w->r, 2))
			write_page(w, m, i);
	}
}

static void op_unmap_part(struct world *w, struct mapping *m, size_t first, size_t count)
{
	size_t tail = m->pages - first - count;
	struct mapping *other = tail && first ? free_slot(w) : NULL;
	if (tail && first && !other)
		return;
	MUST(PART, munmap(m->at + first * PAGE, count * PAGE) == 0);
	w->pages -= count;
	if (other) {
		*other = (struct mapping){m->at + (first + count) * PAGE, tail, other->tag};
		memcpy(other->tag, m->tag + first + count, tail * sizeof *m->tag);
		m->pages = first;
	} else if (first) {
		m->pages = first;
	} else if (tail) {
		memmove(m->tag, m->tag + count, tail * sizeof *m->tag);
		m->at += count * PAGE;
		m->pages = tail;
	} else {
		m->at = NULL;
	}
}

static void op_resize(struct world *w, struct mapping *m)
{
	size_t pages = 1 + rng_below(&w->r, m->pages * 2);
	if (pages > PAGES_MAX || w->pages - m->pages + pages > w->pages_max)
		return;
	int flags = rng_one_in(&w->r, 4) ? 0 : MREMAP_MAYMOVE;
	uint8_t *to = mremap(m->at, m->pages * PAGE, pages * PAGE, flags);
	if (to == MAP_FAILED) {
		/* No room in place, or several kernel mappings in the range: nothing moved. */
		MUST(PART, errno == ENOMEM || errno == EFAULT);
		check_range(m, 0, m->pages);
		return;
	}
	for (size_t i = m->pages; i < pages; i++)
		m->tag[i] = 0;
	w->pages += pages - m->pages;
	m->at = to;
	m->pages = pages;
}

static void op_move_fixed(struct world *w, struct mapping *m)
{
	size_t pages = rng_one_in(&w->r, 2) ? m->pages : 1 + rng_below(&w->r, m->pages);
	/* The target holds managed pages that the move must zap. */
	uint8_t *target = anonymous(NULL, pages, 0);
	for (size_t i = 0; i < pages; i += 3)
		page_stamp(target + i * PAGE, i, 1);
	uint8_t *to = mremap(m->at, m->pages * PAGE, pages * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
			     target);
	if (to == MAP_FAILED) {
		MUST(PART, errno == ENOMEM || errno == EFAULT);
		munmap(target, pages * PAGE);
		/* A range of several kernel mappings may be shortened before the refusal. */
		check_range(m, 0, pages < m->pages ? pages : m->pages);
		if (pages < m->pages) {
			MUST(PART, munmap(m->at + pages * PAGE, (m->pages - pages) * PAGE) == 0);
			w->pages -= m->pages - pages;
			m->pages = pages;
		}
		return;
	}
	MUST(PART, to == target);
	w->pages -= m->pages - pages;
	m->at = to;
	m->pages = pages;
}

static void op_protect(struct world *w, struct mapping *m, size_t first, size_t count)
{
	uint8_t *at = m->at + first * PAGE;
	bool none = rng_one_in(&w->r, 2);
	MUST(PART, mprotect(at, count * PAGE, none ? PROT_NONE : PROT_READ) == 0);
	if (rng_one_in(&w->r, 3))
		make_absent(at, count * PAGE);
	for (int k = 0; k < 4; k++) {
		size_t i = first + rng_below(&w->r, count);
		uint8_t *byte = m->at + i * PAGE + rng_below(&w->r, PAGE);
		if (none && !refused(byte, READ))
			fail(PART, byte, "a read of PROT_NONE to be refused");
		if (!refused(byte, WRITE))
			fail(PART, byte, "a write to %s to be refused", none ? "PROT_NONE" : "PROT_READ");
		if (!none)
			check_page(m, i);
	}
	MUST(PART, mprotect(at, count * PAGE, PROT_READ | PROT_WRITE) == 0);
	op_touch(w, m, first, count);
}

static void op_advise(struct world *w, struct mapping *m, size_t first, size_t count)
{
	static const int advice[] = {MADV_DONTNEED, MADV_FREE,	   MADV_WILLNEED,   MADV_COLD,
				     MADV_PAGEOUT,  MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_SEQUENTIAL,
				     MADV_RANDOM,   MADV_NORMAL,   22 /* POPULATE_READ */,
				     23 /* POPULATE_WRITE */,
				     DONTNEED_LOCKED, 25 /* COLLAPSE */,
				     MADV_DONTDUMP, MADV_DODUMP, MADV_DOFORK};
	int which = advice[rng_below(&w->r, sizeof advice / sizeof advice[0])];
	uint8_t *at = m->at + first * PAGE;
	int done = madvise(at, count * PAGE, which);
	if (done && (which == MADV_DONTNEED || errno != EINVAL))
		fail(PART, at, "madvise %d of %zu pages works; errno: %m", which, count);
	bool zaps = which == MADV_DONTNEED || (which == DONTNEED_LOCKED && !done);
	for (size_t i = first; i < first + count; i++) {
		if (zaps)
			m->tag[i] = 0;
		else if (which == MADV_FREE && !done && m->tag[i])
			m->tag[i] |= MAYBE_ZERO;
	}
	if (zaps || rng_one_in(&w->r, 2))
		check_range(m, first, count);
}

static void op_fixed(struct world *w, struct mapping *m, size_t first, size_t count)
{
	uint8_t *at = m->at + first * PAGE;
	if (rng_one_in(&w->r, 3) && count <= 64) {
		/* A file over managed memory, and anonymous memory over the file again. */
		MUST(PART, mmap(at, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED,
				pattern_file, 0) == at);
		for (size_t i = 0; i < count; i++) {
			page_check(PART, at + i * PAGE, i, 1);
			page_stamp(at + i * PAGE, i, 2);
		}
		madvise(at, count * PAGE, MADV_PAGEOUT);
		for (size_t i = 0; i < count; i++)
			page_check(PART, at + i * PAGE, i, 2);
	}
	MUST(PART, anonymous(at, count, MAP_FIXED) == at);
	memset(m->tag + first, 0, count * sizeof *m->tag);
	op_touch(w, m, first, count);
}

static void *remap_thread(void *index)
{
	struct world *w = unmanaged_shared(sizeof *w);
	uint32_t *tags = unmanaged_shared((size_t)SLOTS * PAGES_MAX * sizeof *tags);
	for (int k = 0; k < SLOTS; k++)
		w->slot[k].tag = tags + k * PAGES_MAX;
	w->r = rng_new(800 + (intptr_t)index);
	w->pages_max = (opt.mib << 20) / PAGE / opt.threads;
	while (!deadline_passed(&until)) {
		struct mapping *m = &w->slot[rng_below(&w->r, SLOTS)];
		if (!m->at) {
			op_map(w);
			continue;
		}
		size_t first = rng_below(&w->r, m->pages);
		size_t count = 1 + rng_below(&w->r, m->pages - first);
		switch (rng_below(&w->r, 12)) {
		case 0:
			op_unmap_part(w, m, first, count);
			break;
		case 1:
			op_resize(w, m);
			break;
		case 2:
			op_move_fixed(w, m);
			break;
		case 3:
			op_protect(w, m, first, count);
			break;
		case 4:
		case 5:
		case 6:
			op_advise(w, m, first, count);
			break;
		case 7:
			op_fixed(w, m, first, count);
			break;
		case 8:
			make_absent(m->at, m->pages * PAGE);
			check_range(m, first, count);
			break;
		case 9:
			check_range(m, 0, m->pages);
			break;
		case 10:
			if (rng_one_in(&w->r, 6)) {
				check_range(m, 0, m->pages);
				release(w, m);
			}
			break;
		default:
			op_touch(w, m, first, count);
		}
	}
	for (int k = 0; k < SLOTS; k++) {
		if (!w->slot[k].at)
			continue;
		check_range(&w->slot[k], 0, w->slot[k].pages);
		release(w, &w->slot[k]);
	}
	munmap(tags, (size_t)SLOTS * PAGES_MAX * sizeof *tags);
	munmap(w, sizeof *w);
	return NULL;
}

/* Fills the gaps between mappings. The kernel uses the highest gap that fits: now it would be any
 * hole in managed memory, however short-lived, and there must be none. */
static void fill_gaps(void)
{
	for (int i = 0; i < 4000; i++)
		MUST(PART, mmap(NULL, (size_t)PAGE << i % 8, PROT_NONE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0) != MAP_FAILED);
}

void part_remap(void)
{
	char name[] = "/tmp/torture-XXXXXX";
	pattern_file = mkstemp(name);
	MUST(PART, pattern_file >= 0 && unlink(name) == 0);
	uint64_t page[PAGE / 8];
	for (uint64_t i = 0; i < 64; i++) {
		page_stamp(page, i, 1);
		MUST(PART, write(pattern_file, page, PAGE) == PAGE);
	}
	struct sigaction action = {.sa_flags = SA_SIGINFO | SA_NODEFER}, segv, bus;
	action.sa_sigaction = on_segv;
	MUST(PART, sigaction(SIGSEGV, &action, &segv) == 0 && sigaction(SIGBUS, &action, &bus) == 0);
	fill_gaps();
	until = deadline_new();
	run_threads(PART, opt.threads, remap_thread);
	MUST(PART, sigaction(SIGSEGV, &segv, NULL) == 0 && sigaction(SIGBUS, &bus, NULL) == 0);
	close(pattern_file);
}
