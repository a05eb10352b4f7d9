/* Managed memory for C and C++ programs under `flashvm run`: map it, advise on it, see what paging costs.
 *
 * Nothing is linked: the functions look for the object that a run preloads. `flashvm run --select api` pages what these
 * functions map, and nothing else; without it everything is paged, and these functions work as well. Outside of a run they
 * fail with ENOSYS: no memory ever lies in plain RAM instead. flashvm_explain() turns an error into a sentence.
 *
 *     cc -o program program.c -Iinclude          (glibc before 2.34: -ldl)
 *     flashvm run --ram 2G --select api -- ./program
 */
#ifndef FLASHVM_H
#define FLASHVM_H

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where dlsym looks: all objects of the program. <dlfcn.h> has the name with _GNU_SOURCE alone. */
#ifdef RTLD_DEFAULT
#define FLASHVM_EVERYWHERE RTLD_DEFAULT
#else
#define FLASHVM_EVERYWHERE ((void *)0)
#endif

/* Counters of this process since it started, and amounts at this moment. Later versions add fields at the end. */
struct flashvm_stats {
	uint64_t faults;             /* faults, first stores to write-protected pages left out */
	uint64_t major;              /* of these: read from flash */
	uint64_t pool;               /* of these: on pages that were compressed in RAM */
	uint64_t soft;               /* of these: on pages in RAM, out of the program's reach */
	uint64_t zero;               /* of these: first touches */
	uint64_t read_bytes;         /* read from flash */
	uint64_t written_bytes;      /* written to flash */
	uint64_t resident_bytes;     /* RAM of this process's pages, compressed ones included */
	uint64_t resident_bytes_max; /* the most that it has been */
	uint64_t pool_bytes;         /* of resident_bytes: RAM of compressed pages */
	uint64_t flash_bytes;        /* space of this process on flash */
	uint64_t budget_bytes;       /* RAM that all processes of the run share: --ram */
	uint64_t locked_bytes;       /* memory that this process has locked */
};

/* What flashvm_advise() says about memory. The contents stay as they are. */
enum flashvm_advice {
	FLASHVM_WILLNEED = 3, /* read it ahead */
	FLASHVM_COLD = 20,    /* evict it before other memory */
	FLASHVM_PAGEOUT = 21, /* begin to evict it now */
	FLASHVM_PIN = 1001,   /* keep it in RAM, from now on: mlock() */
	FLASHVM_UNPIN = 1002  /* no longer: munlock() */
};

/* A function of the preloaded object, or null and ENOSYS. */
static inline void *flashvm_symbol(const char *name)
{
	void *found = dlsym(FLASHVM_EVERYWHERE, name);
	if (!found)
		errno = ENOSYS;
	return found;
}

/* Whether this process runs under flashvm. */
static inline int flashvm_is_run(void)
{
	return dlsym(FLASHVM_EVERYWHERE, "flashvm_map") != NULL;
}

/* Managed memory of `bytes`, rounded up to whole pages: zeros. Null and errno: EINVAL for 0 bytes, ENOMEM if budget and store
 * together have no room, ENOSYS outside of a run. */
static inline void *flashvm_map(size_t bytes)
{
	void *(*map)(size_t);
	void *found = flashvm_symbol("flashvm_map");
	if (!found)
		return NULL;
	memcpy(&map, &found, sizeof map);
	return map(bytes);
}

/* Frees memory of flashvm_map(), or whole pages of it. 0, or -1 and errno. */
static inline int flashvm_unmap(void *memory, size_t bytes)
{
	int (*unmap)(void *, size_t);
	void *found = flashvm_symbol("flashvm_unmap");
	if (!found)
		return -1;
	memcpy(&unmap, &found, sizeof unmap);
	return unmap(memory, bytes);
}

/* Tells the pager how memory will be used. FLASHVM_COLD and FLASHVM_PAGEOUT are about the pages that hold nothing else, the
 * others about every page that the range touches. 0, or -1 and errno: ENOMEM if more than (budget - 256 KiB) / 2 would be
 * pinned. A pin ends with its memory, and if other processes of the run leave too little of the budget for it; a forked child has none. */
static inline int flashvm_advise(const void *memory, size_t bytes, enum flashvm_advice advice)
{
	const uintptr_t page = 4096;
	uintptr_t first = (uintptr_t)memory, end = first + bytes;
	int is_pin = advice == FLASHVM_PIN || advice == FLASHVM_UNPIN;
	/* By name, since <sys/mman.h> does not declare them to strict C. */
	const char *name = is_pin ? (advice == FLASHVM_PIN ? "mlock" : "munlock") : "madvise";
	int (*advise)(void *, size_t, int);
	int (*lock)(void *, size_t);
	void *found = flashvm_symbol("flashvm_map") ? flashvm_symbol(name) : NULL;
	if (!found)
		return -1;
	if (is_pin) {
		memcpy(&lock, &found, sizeof lock);
		return lock((void *)first, bytes);
	}
	memcpy(&advise, &found, sizeof advise);
	if (advice == FLASHVM_WILLNEED) {
		first -= first % page;
		end += (page - end % page) % page;
	} else {
		first += (page - first % page) % page;
		end -= end % page;
	}
	return first < end ? advise((void *)first, end - first, (int)advice) : 0;
}

/* Fills `stats`. 0, or -1 and errno. */
static inline int flashvm_get_stats(struct flashvm_stats *stats)
{
	int (*get)(void *, size_t);
	void *found = flashvm_symbol("flashvm_stats");
	if (!found)
		return -1;
	memcpy(&get, &found, sizeof get);
	return get(stats, sizeof *stats);
}

/* An error of these functions, with its remedy. */
static inline const char *flashvm_explain(int error)
{
	switch (error) {
	case 0:
		return "no error";
	case ENOSYS:
		return "this process does not run under flashvm: start it with flashvm run --ram SIZE -- PROGRAM";
	case ENOMEM:
		return "budget and store have no room: give the run more --ram or a larger --flash-size, or pin less";
	case EINVAL:
		return "the range is no managed memory, or has no bytes: pass what flashvm_map returned";
	default:
		return strerror(error);
	}
}

#ifdef __cplusplus
}
#endif

#endif
