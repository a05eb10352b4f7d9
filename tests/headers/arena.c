/* The arena against a plain table: objects of random sizes and alignments, made and freed at random, each filled with bytes of its own.
 *
 * usage: arena SEED TURNS
 *
 * Checks that objects keep their bytes, are aligned, and give their memory back; and the errors of bad arguments.
 */
#include <flashvm_arena.h>

#include <stdio.h>
#include <stdlib.h>

#define OBJECTS 4096

static uint64_t state;

static uint64_t next(void)
{
	uint64_t z = state += 0x9E3779B97F4A7C15ull;
	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
	z = (z ^ z >> 27) * 0x94D049BB133111EBull;
	return z ^ z >> 31;
}

#define CHECK(holds)                                                                          \
	do {                                                                                  \
		if (!(holds)) {                                                               \
			fprintf(stderr, "arena: line %d: %s, turn %lu\n", __LINE__, #holds, turn); \
			exit(1);                                                              \
		}                                                                             \
	} while (0)

static struct {
	unsigned char *at;
	size_t bytes, align;
	unsigned char fill;
} objects[OBJECTS];

int main(int argc, char **argv)
{
	unsigned long turn = 0, turns;
	struct flashvm_stats before, after;
	flashvm_arena *arena;
	if (argc != 3)
		return 2;
	state = strtoull(argv[1], NULL, 10);
	turns = strtoul(argv[2], NULL, 10);
	CHECK(flashvm_is_run());
	CHECK(flashvm_get_stats(&before) == 0);
	arena = flashvm_arena_create();
	CHECK(arena);
	CHECK(!flashvm_arena_alloc(arena, 8, 24) && errno == EINVAL);
	CHECK(!flashvm_arena_alloc(arena, 8, 8192) && errno == EINVAL);
	CHECK(!flashvm_arena_alloc(arena, SIZE_MAX - 5, 0) && errno == ENOMEM);
	CHECK(!flashvm_map(0) && errno == EINVAL);
	for (; turn < turns; turn++) {
		size_t i = next() % OBJECTS, b;
		if (objects[i].at) {
			for (b = 0; b < objects[i].bytes; b++)
				CHECK(objects[i].at[b] == (unsigned char)(objects[i].fill + b));
			flashvm_arena_free(arena, objects[i].at, objects[i].bytes, objects[i].align);
			objects[i].at = NULL;
			continue;
		}
		objects[i].bytes = next() % ((size_t)1 << (next() % 20));
		objects[i].align = next() % 4 ? 0 : (size_t)1 << (next() % 13);
		objects[i].fill = (unsigned char)next();
		objects[i].at = (unsigned char *)flashvm_arena_alloc(arena, objects[i].bytes, objects[i].align);
		CHECK(objects[i].at);
		CHECK((uintptr_t)objects[i].at % 16 == 0);
		CHECK(!objects[i].align || (uintptr_t)objects[i].at % objects[i].align == 0);
		for (b = 0; b < objects[i].bytes; b++)
			objects[i].at[b] = (unsigned char)(objects[i].fill + b);
		if (turn % 512 == 0)
			CHECK(flashvm_advise(objects[i].at, objects[i].bytes, turn % 1024 ? FLASHVM_PAGEOUT : FLASHVM_COLD) == 0);
	}
	CHECK(flashvm_get_stats(&after) == 0);
	CHECK(after.faults > before.faults && after.zero > before.zero && after.major + after.pool > before.major + before.pool);
	CHECK(after.resident_bytes <= after.budget_bytes && after.resident_bytes_max <= after.budget_bytes);
	CHECK(after.pool_bytes <= after.resident_bytes && after.written_bytes >= before.written_bytes);
	flashvm_arena_destroy(arena);
	CHECK(flashvm_get_stats(&before) == 0);
	/* All its memory went back. */
	CHECK(before.resident_bytes < after.resident_bytes / 2);
	printf("arena: %lu turns, faults: %llu\n", turns, (unsigned long long)(after.faults));
	return 0;
}
