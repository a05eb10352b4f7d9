/* When the contents of a hidden page are dropped, does its guard marker stay? Two threads use every second page of a
 * second mapping of the file, by loads or by stores; a third fills and drops the pages between, which are hidden in the
 * first mapping and never touched. Counts the markers that are lost.
 *
 *   cc -O2 -pthread -o markers eval/markers.c && ./markers [SECONDS]
 *
 * Linux 6.15 or later.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096UL
#define PAGES 64UL
#define GUARD_INSTALL 102
#define PM_GUARD_REGION (1ULL << 58)
#define FAIL(what) (perror(what), exit(1))

enum use { NONE, STORES, LOADS };
static const char *const names[] = {"nothing", "stores", "loads"};

static volatile char *second;
static enum use use;
static atomic_bool over;

static void *user(void *unused)
{
	(void)unused;
	while (!over) {
		for (unsigned long i = 0; i < PAGES; i += 2) {
			volatile char *page = second + i * PAGE;
			if (use == LOADS)
				(void)*page;
			else if (use == STORES)
				*page = 1;
			/* So that the next touch maps the page again, and a load those around it. */
			if (madvise((void *)page, PAGE, MADV_DONTNEED))
				FAIL("MADV_DONTNEED");
		}
	}
	return NULL;
}

static int has_marker(int pagemap, const char *page)
{
	uint64_t entry;
	if (pread(pagemap, &entry, sizeof entry, (uintptr_t)page / PAGE * sizeof entry) !=
	    sizeof entry)
		FAIL("/proc/self/pagemap");
	return (entry & PM_GUARD_REGION) != 0;
}

static void measure(int seconds)
{
	char contents[PAGE];
	memset(contents, 7, PAGE);
	int file = memfd_create("markers", 0);
	int pagemap = open("/proc/self/pagemap", O_RDONLY);
	if (file < 0 || pagemap < 0 || ftruncate(file, PAGES * PAGE))
		FAIL("memfd");
	char *first = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	second = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (first == MAP_FAILED || second == MAP_FAILED)
		FAIL("mmap");
	if (madvise(first, PAGES * PAGE, GUARD_INSTALL))
		FAIL("MADV_GUARD_INSTALL");
	pthread_t threads[2];
	over = false;
	for (int i = 0; i < 2; i++)
		if (pthread_create(&threads[i], NULL, user, NULL))
			FAIL("pthread_create");
	unsigned long drops = 0, lost = 0;
	for (time_t end = time(NULL) + seconds; time(NULL) < end;) {
		for (unsigned long i = 1; i < PAGES; i += 2) {
			if (pwrite(file, contents, PAGE, i * PAGE) != PAGE)
				FAIL("pwrite");
			usleep(0);
			if (fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, i * PAGE, PAGE))
				FAIL("fallocate");
			drops++;
			if (!has_marker(pagemap, first + i * PAGE)) {
				lost++;
				if (madvise(first + i * PAGE, PAGE, GUARD_INSTALL))
					FAIL("MADV_GUARD_INSTALL");
			}
		}
	}
	over = true;
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	printf("%-8s through the second mapping: %lu of %lu markers lost\n", names[use], lost, drops);
	munmap(first, PAGES * PAGE);
	munmap((void *)second, PAGES * PAGE);
	close(file);
	close(pagemap);
}

int main(int count, char **words)
{
	int seconds = count > 1 ? atoi(words[1]) : 5;
	if (seconds < 1) {
		fprintf(stderr, "usage: markers [SECONDS]        (1 or more; default 5)\n");
		return 2;
	}
	for (use = NONE; use <= LOADS; use++)
		measure(seconds);
	return 0;
}
