/* An arena in managed memory: objects of any size, freed one by one or all at once.
 *
 *     flashvm_arena *arena = flashvm_arena_create();
 *     double *row = flashvm_arena_alloc(arena, 4096 * sizeof *row, 0);
 *     flashvm_arena_free(arena, row, 4096 * sizeof *row, 0);
 *     flashvm_arena_destroy(arena);
 *
 * The caller of flashvm_arena_free() names the size, so that objects have no headers and neighbours fill their pages. One
 * thread at a time uses an arena. Objects are rounded up to a multiple of 16 bytes, above 1 KiB to a power of two, above 256
 * KiB to whole pages. Freed objects serve later ones of the same rounded size; pages go back to the run when a large object is
 * freed, or with the arena.
 */
#ifndef FLASHVM_ARENA_H
#define FLASHVM_ARENA_H

#include "flashvm.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FLASHVM_ARENA_PAGE ((size_t)4096)
#define FLASHVM_ARENA_CHUNK ((size_t)1 << 20) /* small objects are cut from mappings of this size */
#define FLASHVM_ARENA_SMALL ((size_t)1024)    /* the largest object that is rounded to 16 bytes */
#define FLASHVM_ARENA_LARGE ((size_t)1 << 18) /* larger objects have a mapping each */
#define FLASHVM_ARENA_CLASSES (1024 / 16 + 8)

/* At the start of each mapping: a page of its own before a large object, so that the object is aligned to a page. */
struct flashvm_arena_mapping {
	struct flashvm_arena_mapping *next, *before;
	size_t bytes;
};

typedef struct flashvm_arena {
	struct flashvm_arena_mapping mappings; /* a ring: this one holds nothing */
	char *at, *end;                        /* the rest of the newest chunk */
	void *freed[FLASHVM_ARENA_CLASSES];    /* by class: freed objects, each with the address of the next */
	size_t mapped_bytes;                   /* of all mappings */
} flashvm_arena;

/* The rounded size of an object, and its class; for a large object the class is -1. */
static inline size_t flashvm_arena_round(size_t bytes, size_t align, int *class_of)
{
	size_t rounded = 2 * FLASHVM_ARENA_SMALL;
	int power = FLASHVM_ARENA_SMALL / 16;
	/* An object whose rounded size is a power of two is aligned to it, up to a page. */
	if (align > 16) {
		size_t to = 32;
		while (to < bytes || to < align)
			to *= 2;
		bytes = to;
	}
	if (bytes <= FLASHVM_ARENA_SMALL) {
		rounded = bytes ? (bytes + 15) & ~(size_t)15 : 16;
		*class_of = (int)(rounded / 16) - 1;
		return rounded;
	}
	if (bytes > FLASHVM_ARENA_LARGE) {
		*class_of = -1;
		return (bytes + FLASHVM_ARENA_PAGE - 1) & ~(FLASHVM_ARENA_PAGE - 1);
	}
	while (rounded < bytes) {
		rounded *= 2;
		power++;
	}
	*class_of = power;
	return rounded;
}

/* A mapping of the arena, or null and errno. */
static inline struct flashvm_arena_mapping *flashvm_arena_map(flashvm_arena *arena, size_t bytes)
{
	struct flashvm_arena_mapping *mapping = (struct flashvm_arena_mapping *)flashvm_map(bytes);
	if (!mapping)
		return NULL;
	mapping->bytes = bytes;
	mapping->before = &arena->mappings;
	mapping->next = arena->mappings.next;
	mapping->next->before = mapping;
	arena->mappings.next = mapping;
	arena->mapped_bytes += bytes;
	return mapping;
}

/* An empty arena, or null and errno, as flashvm_map(). */
static inline flashvm_arena *flashvm_arena_create(void)
{
	flashvm_arena *arena = (flashvm_arena *)flashvm_map(sizeof *arena);
	if (arena)
		arena->mappings.next = arena->mappings.before = &arena->mappings;
	return arena;
}

/* An object of `bytes`, aligned to `align`: a power of two up to 4096, or 0 for 16. Null and errno: EINVAL for another `align`,
 * otherwise as flashvm_map(). Its contents are zeros, unless its place served a freed object. */
static inline void *flashvm_arena_alloc(flashvm_arena *arena, size_t bytes, size_t align)
{
	int class_of;
	size_t rounded, to;
	char *at;
	if ((align & (align - 1)) || align > FLASHVM_ARENA_PAGE) {
		errno = EINVAL;
		return NULL;
	}
	if (bytes > (SIZE_MAX >> 2)) {
		errno = ENOMEM;
		return NULL;
	}
	rounded = flashvm_arena_round(bytes, align, &class_of);
	if (class_of < 0) {
		struct flashvm_arena_mapping *mapping = flashvm_arena_map(arena, FLASHVM_ARENA_PAGE + rounded);
		return mapping ? (char *)mapping + FLASHVM_ARENA_PAGE : NULL;
	}
	if (arena->freed[class_of]) {
		void *object = arena->freed[class_of];
		memcpy(&arena->freed[class_of], object, sizeof object);
		return object;
	}
	to = (rounded & (rounded - 1)) ? 16 : rounded < FLASHVM_ARENA_PAGE ? rounded : FLASHVM_ARENA_PAGE;
	at = (char *)(((uintptr_t)arena->at + to - 1) & ~(uintptr_t)(to - 1));
	if (!arena->at || at > arena->end || (size_t)(arena->end - at) < rounded) {
		char *chunk = (char *)flashvm_arena_map(arena, FLASHVM_ARENA_CHUNK);
		if (!chunk)
			return NULL;
		arena->end = chunk + FLASHVM_ARENA_CHUNK;
		at = chunk + sizeof(struct flashvm_arena_mapping);
		at = (char *)(((uintptr_t)at + to - 1) & ~(uintptr_t)(to - 1));
	}
	arena->at = at + rounded;
	return at;
}

/* Frees an object of flashvm_arena_alloc(); `bytes` and `align` are those it was made with. */
static inline void flashvm_arena_free(flashvm_arena *arena, void *object, size_t bytes, size_t align)
{
	int class_of;
	if (!object)
		return;
	flashvm_arena_round(bytes, align, &class_of);
	if (class_of < 0) {
		struct flashvm_arena_mapping *mapping =
			(struct flashvm_arena_mapping *)((char *)object - FLASHVM_ARENA_PAGE);
		mapping->before->next = mapping->next;
		mapping->next->before = mapping->before;
		arena->mapped_bytes -= mapping->bytes;
		flashvm_unmap(mapping, mapping->bytes);
	} else {
		memcpy(object, &arena->freed[class_of], sizeof object);
		arena->freed[class_of] = object;
	}
}

/* Frees all objects of an arena, and the arena. */
static inline void flashvm_arena_destroy(flashvm_arena *arena)
{
	if (!arena)
		return;
	while (arena->mappings.next != &arena->mappings) {
		struct flashvm_arena_mapping *mapping = arena->mappings.next;
		arena->mappings.next = mapping->next;
		flashvm_unmap(mapping, mapping->bytes);
	}
	flashvm_unmap(arena, sizeof *arena);
}

#ifdef __cplusplus
}
#endif

#endif
