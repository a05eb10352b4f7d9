/* Pinned memory: no fault on it while other memory is paged; its limits; what ends a pin.
 *
 * usage: pin MEGABYTES        (of other memory: more than the budget has beside the pins)
 */
#define _GNU_SOURCE
#include <flashvm.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096
#define BYTES (512 * (size_t)PAGE)

#define CHECK(holds)                                                                                              \
	do {                                                                                                      \
		if (!(holds)) {                                                                                   \
			fprintf(stderr, "pin: line %d: %s (%s)\n", __LINE__, #holds, strerror(errno));            \
			exit(1);                                                                                  \
		}                                                                                                 \
	} while (0)

static volatile unsigned char *others;
static size_t others_bytes;

static struct flashvm_stats now(void)
{
	struct flashvm_stats stats;
	CHECK(flashvm_get_stats(&stats) == 0);
	return stats;
}

/* Other memory goes through RAM twice, in order and out of order. */
static void thrash(void)
{
	for (size_t at = 0; at < others_bytes; at += PAGE)
		others[at] += 1;
	for (size_t i = 0; i < others_bytes / PAGE; i++)
		others[i * 7919 % (others_bytes / PAGE) * PAGE] += 1;
}

static void fill(unsigned char *memory)
{
	for (size_t i = 0; i < BYTES; i++)
		memory[i] = (unsigned char)(i * 31 + i / PAGE);
}

/* Reads pinned memory; returns the faults that this took. */
static unsigned long long touch(const unsigned char *memory)
{
	uint64_t before;
	/* In handler mode the pager counts the last fault of this thread when it has woken it. */
	usleep(20000);
	before = now().faults;
	for (size_t i = 0; i < BYTES; i++)
		if (memory[i] != (unsigned char)(i * 31 + i / PAGE)) {
			fprintf(stderr, "pin: byte %zu is wrong\n", i);
			exit(1);
		}
	return now().faults - before;
}

int main(int argc, char **argv)
{
	unsigned char *pinned, *moved;
	int status;
	pid_t child;
	if (argc != 2)
		return 2;
	others_bytes = strtoul(argv[1], NULL, 10) << 20;
	others = flashvm_map(others_bytes);
	pinned = flashvm_map(BYTES);
	CHECK(others && pinned);
	fill(pinned);
	thrash();
	CHECK(now().locked_bytes == 0);
	CHECK(flashvm_advise(pinned, BYTES, FLASHVM_PIN) == 0);
	CHECK(now().locked_bytes == BYTES);
	CHECK(touch(pinned) == 0);
	thrash();
	CHECK(touch(pinned) == 0);
	/* Twice is once; advice does not move it. */
	CHECK(mlock(pinned + 5, 3 * PAGE) == 0 && now().locked_bytes == BYTES);
	CHECK(madvise(pinned, BYTES, MADV_PAGEOUT) == 0 && madvise(pinned, BYTES, MADV_COLD) == 0);
	thrash();
	CHECK(touch(pinned) == 0);
	/* More than half of the budget is refused, and changes nothing. */
	CHECK(flashvm_advise((void *)others, others_bytes, FLASHVM_PIN) == -1 && errno == ENOMEM);
	CHECK(now().locked_bytes == BYTES);
	/* A child has no pins; the parent keeps its own. */
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK(now().locked_bytes == 0);
		thrash();
		touch(pinned);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	/* While there were two, the budget may have been too small for the pins. The run takes a moment to see the child's end. */
	CHECK(now().locked_bytes == BYTES || now().locked_bytes == 0);
	for (int tries = 0; flashvm_advise(pinned, BYTES, FLASHVM_PIN) != 0; tries++) {
		CHECK(errno == ENOMEM && tries < 1000);
		usleep(10000);
	}
	CHECK(now().locked_bytes == BYTES);
	thrash();
	CHECK(touch(pinned) == 0);
	/* A pin moves with its memory. */
	moved = mremap(pinned, BYTES, 4 * BYTES, MREMAP_MAYMOVE);
	CHECK(moved != MAP_FAILED && now().locked_bytes == BYTES);
	thrash();
	CHECK(touch(moved) == 0);
	/* Part of it, then the rest. */
	CHECK(munlock(moved, BYTES / 2) == 0 && now().locked_bytes == BYTES / 2);
	CHECK(flashvm_advise(moved, BYTES, FLASHVM_UNPIN) == 0 && now().locked_bytes == 0);
	/* Some policies keep it nevertheless: it has been used often. */
	thrash();
	touch(moved);
	/* Pages that are pinned before their first touch; a pin ends with its memory. */
	CHECK(mlock2(moved + BYTES, BYTES, MLOCK_ONFAULT) == 0 && now().locked_bytes == BYTES);
	thrash();
	fill(moved + BYTES);
	thrash();
	CHECK(touch(moved + BYTES) == 0);
	CHECK(munmap(moved + BYTES + BYTES / 2, BYTES / 2) == 0 && now().locked_bytes == BYTES / 2);
	CHECK(munlockall() == 0 && now().locked_bytes == 0);
	CHECK(mlock(moved + BYTES, BYTES) == -1 && errno == ENOMEM);
	CHECK(mprotect(moved, PAGE, PROT_NONE) == 0 && mlock(moved, PAGE) == -1 && errno == ENOMEM);
	CHECK(now().locked_bytes == 0);
	printf("pin: ok\n");
	return 0;
}
