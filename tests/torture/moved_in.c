/* Moves the kernel's memory over managed memory, while other threads make the pager evict.
 *
 * usage: moved_in ROUNDS
 *
 * The new contents are there as soon as mremap has put them in place, which is before the pager hears that the old
 * mapping is gone. The pager must not take the new pages for the old ones. Exit status: 0 all right, 1 a page was lost.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, PAGES = 1200, PRESSURE_MIB = 24, THREADS = 2 };

static atomic_bool over;

static void *press(void *seed)
{
	size_t bytes = (size_t)PRESSURE_MIB << 20;
	uint8_t *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		abort();
	for (uint32_t r = (uintptr_t)seed; !over; r = r * 1103515245 + 12345)
		at[(r >> 4) % bytes]++;
	return NULL;
}

/* MAP_STACK: memory that stays the kernel's. */
static uint8_t *filled(int flags, uint8_t byte)
{
	uint8_t *at = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
	if (at == MAP_FAILED)
		abort();
	for (int i = 0; i < PAGES; i++)
		at[i * PAGE] = byte;
	return at;
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 100;
	pthread_t thread[THREADS];
	for (uintptr_t i = 0; i < THREADS; i++)
		if (pthread_create(&thread[i], NULL, press, (void *)(i + 1)))
			abort();
	long lost = 0;
	for (int round = 0; round < rounds; round++) {
		uint8_t *target = filled(0, 1);
		uint8_t *source = filled(MAP_STACK, 2);
		if (mremap(source, PAGES * PAGE, PAGES * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
			   target) != target) {
			perror("mremap");
			return 1;
		}
		for (int i = 0; i < PAGES; i++)
			lost += target[i * PAGE] != 2;
		munmap(target, PAGES * PAGE);
	}
	over = 1;
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	printf("%d rounds, %ld pages lost\n", rounds, lost);
	return lost != 0;
}
