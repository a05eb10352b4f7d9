/* small: objects of 1 byte to 4 KiB, far more than fit into RAM, under flashvm run --granularity 512.
 *
 * usage: small churn MIB SECONDS SEED    threads allocate, check, change, resize and free each other's
 *                                        objects, as does a signal handler; forked children check
 *                                        their copies
 *        small lost MIB                  objects through a failing store: right data or SIGBUS; exit code 3
 *                                        for a lost page of the C library
 *        small die MIB                   the same; the handler touches the lost object, which ends the program
 *        small fill BYTES                objects of BYTES until ENOMEM: all are right
 *        small order COUNT               COUNT objects of 512 bytes, looked at twice in the order in which they were made
 *        small maps LEFT                 churn after the program has taken all but LEFT of the mappings that
 *                                        the kernel allows
 *        small hole                      mappings at the addresses of small pages go elsewhere, or are refused
 *        small files                     a limit on file sizes that would break the pager is refused
 *        small free HOW                  an error that must end the program: double, double-small, interior,
 *                                        never, stale
 *
 * The expected contents are in unmanaged memory.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4, SIGNALLED = 64 };

static struct slot {
	pthread_mutex_t lock;
	uint8_t *at;
	uint32_t bytes;
	uint64_t tag;
} *slots;
static size_t count;
static double until;
static uint64_t seed;
static uint64_t *counted; /* forks, and signals handled */

#define DIE(...) (dprintf(2, "small: FAILED: " __VA_ARGS__), dprintf(2, "; seed %llu\n", (unsigned long long)seed), _exit(1))

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static uint64_t next(uint64_t *state)
{
	uint64_t z = *state += 0x9E3779B97F4A7C15ull;
	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
	z = (z ^ z >> 27) * 0x94D049BB133111EBull;
	return z ^ z >> 31;
}

static void *shared(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		DIE("mmap: %m");
	return at;
}

static uint8_t expected(uint64_t tag, size_t i)
{
	return (tag >> i % 7 * 8) + i;
}

static void fill(uint8_t *at, size_t bytes, uint64_t tag)
{
	for (size_t i = 0; i < bytes; i++)
		at[i] = expected(tag, i);
}

static void check(const uint8_t *at, size_t bytes, uint64_t tag, const char *who)
{
	for (size_t i = 0; i < bytes; i++)
		if (at[i] != expected(tag, i))
			DIE("%s: byte %zu of %zu at %p is %#x and not %#x", who, i, bytes, (void *)at, at[i],
			    expected(tag, i));
}

/* Mostly sizes that take a page of 0.5 KiB each, with some of all kinds. */
static size_t some_size(uint64_t *r)
{
	switch (next(r) % 8) {
	case 0:
		return 1 + next(r) % 4096;
	case 1:
		return 1 + next(r) % 256;
	case 2:
		return 4097 + next(r) % 4096;
	default:
		return 257 + next(r) % 256;
	}
}

static void fresh(struct slot *s, uint64_t *r)
{
	size_t bytes = some_size(r), align = (size_t)16 << next(r) % 6;
	void *at = NULL;
	switch (next(r) % 4) {
	case 0:
		at = calloc(1, bytes);
		for (size_t i = 0; at && i < bytes; i++)
			if (((uint8_t *)at)[i])
				DIE("byte %zu of %zu from calloc is %#x", i, bytes, ((uint8_t *)at)[i]);
		break;
	case 1:
		if (posix_memalign(&at, align, bytes))
			at = NULL;
		if ((uintptr_t)at % align)
			DIE("%p is not aligned to %zu", at, align);
		break;
	default:
		at = malloc(bytes);
	}
	if (!at)
		DIE("%zu bytes: %m", bytes);
	if ((uintptr_t)at % 16 || malloc_usable_size(at) < bytes)
		DIE("%p has room for %zu of %zu bytes", at, malloc_usable_size(at), bytes);
	s->at = at, s->bytes = bytes, s->tag = next(r);
	fill(s->at, s->bytes, s->tag);
}

static void *churn(void *index)
{
	uint64_t r = seed + (uintptr_t)index * 1000003;
	while (now() < until)
		for (int i = 0; i < 200; i++) {
			struct slot *s = &slots[next(&r) % count];
			pthread_mutex_lock(&s->lock);
			if (!s->at) {
				fresh(s, &r);
			} else {
				check(s->at, s->bytes, s->tag, "thread");
				switch (next(&r) % 8) {
				case 0:
					free(s->at);
					s->at = NULL;
					break;
				case 1: {
					size_t bytes = some_size(&r), kept = bytes < s->bytes ? bytes : s->bytes;
					s->at = realloc(s->at, bytes);
					if (!s->at)
						DIE("realloc to %zu: %m", bytes);
					check(s->at, kept, s->tag, "realloc");
					s->bytes = bytes;
					fill(s->at, s->bytes, s->tag);
					break;
				}
				case 2:
					s->tag = next(&r);
					fill(s->at, s->bytes, s->tag);
				}
			}
			pthread_mutex_unlock(&s->lock);
		}
	return NULL;
}

static uint8_t *signalled[SIGNALLED]; /* used only by the handler */

static void on_alarm(int number)
{
	int before = errno;
	static unsigned turn;
	(void)number;
	uint8_t *at = signalled[turn++ % SIGNALLED];
	check(at, 512, (uintptr_t)at, "signal handler");
	fill(at, 512, (uintptr_t)at);
	counted[1]++;
	errno = before;
}

/* Forks a child, which checks the objects that its parent had at the fork. */
static void children(uint64_t *r)
{
	pid_t child = fork();
	if (child < 0)
		return; /* no room for a copy */
	if (!child) {
		for (size_t i = next(r) % 8; i < count; i += 8)
			/* A slot that a thread held at the fork stays locked in the child. */
			if (!pthread_mutex_trylock(&slots[i].lock) && slots[i].at) {
				check(slots[i].at, slots[i].bytes, slots[i].tag, "child");
				free(slots[i].at);
				struct slot new = {0};
				fresh(&new, r);
				check(new.at, new.bytes, new.tag, "child, its own");
				free(new.at);
			}
		_exit(0);
	}
	int status;
	waitpid(child, &status, 0);
	if (status)
		DIE("a child ended with %#x", status);
	counted[0]++;
}

static int main_churn(size_t mib, double seconds)
{
	count = (mib << 20) / 640;
	/* Private, so that a child has its own locks; MAP_STACK keeps it unmanaged. */
	slots = mmap(NULL, count * sizeof *slots, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	counted = shared(4096);
	for (size_t i = 0; i < count; i++)
		pthread_mutex_init(&slots[i].lock, NULL);
	for (int i = 0; i < SIGNALLED; i++) {
		signalled[i] = malloc(512);
		fill(signalled[i], 512, (uintptr_t)signalled[i]);
	}
	uint64_t r = seed;
	for (size_t i = 0; i < count; i++)
		fresh(&slots[i], &r);
	struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
	sigaction(SIGALRM, &action, NULL);
	struct itimerval often = {{0, 3000}, {0, 3000}};
	setitimer(ITIMER_REAL, &often, NULL);
	until = now() + seconds;
	pthread_t threads[THREADS];
	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, churn, (void *)i);
	do
		children(&r);
	while (now() < until);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
	for (size_t i = 0; i < count; i++)
		if (slots[i].at) {
			check(slots[i].at, slots[i].bytes, slots[i].tag, "end");
			free(slots[i].at);
		}
	printf("small: all checks held: %llu forks, %llu signals\n", (unsigned long long)counted[0],
	       (unsigned long long)counted[1]);
	return 0;
}

static sigjmp_buf probe;
static volatile sig_atomic_t probing;

static void on_bus(int number)
{
	(void)number;
	if (!probing)
		_exit(3);
	siglongjmp(probe, 1);
}

static volatile char *volatile again;

static void on_bus_again(int number)
{
	(void)number;
	(void)*again;
	_exit(4);
}

static int main_lost(size_t mib, bool die)
{
	count = (mib << 20) / 512;
	slots = shared(count * sizeof *slots);
	/* With SA_RESETHAND, as redis does: memory that its handler touches may be lost, too. */
	struct sigaction action = {.sa_handler = die ? on_bus_again : on_bus, .sa_flags = die ? SA_RESETHAND | SA_NODEFER : 0};
	sigaction(SIGBUS, &action, NULL);
	for (size_t i = 0; i < count; i++)
		fill(slots[i].at = malloc(512), 512, slots[i].tag = i * 77);
	static volatile size_t lost;
	for (volatile size_t i = 0; i < count; i++) {
		if (sigsetjmp(probe, 1)) {
			lost++;
		} else {
			again = slots[i].at;
			probing = 1;
			check(slots[i].at, 512, slots[i].tag, "object");
		}
		probing = 0;
	}
	printf("small: %zu of %zu objects are lost, the others are right\n", lost, count);
	/* The buffer of stdout may be lost, too: then the kernel cannot read it. */
	return fflush(stdout) ? 3 : 0;
}

static int main_fill(size_t bytes)
{
	count = 1 << 20;
	slots = shared(count * sizeof *slots);
	size_t got = 0;
	for (; got < count && (slots[got].at = malloc(bytes)); got++)
		fill(slots[got].at, bytes, slots[got].tag = got * 77);
	if (got == count)
		DIE("%zu objects of %zu bytes fit", got, bytes);
	for (size_t i = 0; i < got; i++)
		check(slots[i].at, bytes, slots[i].tag, "object");
	for (size_t i = 0; i < got; i++)
		free(slots[i].at);
	if (!malloc(bytes))
		DIE("no memory when all of it is free");
	printf("small: %zu objects, all are right\n", got);
	return 0;
}

/* Every second page of a shared mapping gets another protection: each is a mapping of its own. */
static int main_maps(size_t left)
{
	size_t allowed = 0;
	FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
	if (!file || fscanf(file, "%zu", &allowed) != 1 || allowed > 1 << 20)
		DIE("vm.max_map_count: %zu", allowed);
	fclose(file);
	char *at = shared(allowed * 4096);
	size_t taken = 0;
	while (taken + left < allowed && !mprotect(at + taken * 4096, 4096, PROT_READ))
		taken += 2;
	count = 12 << 11;
	slots = shared(count * sizeof *slots);
	for (size_t i = 0; i < count; i++)
		if ((slots[i].at = malloc(512)))
			fill(slots[i].at, 512, slots[i].tag = i * 77);
	uint64_t r = 1;
	for (size_t i = 0; i < 2 * count; i++) {
		struct slot *s = &slots[next(&r) % count];
		if (s->at) {
			check(s->at, 512, s->tag, "object");
			fill(s->at, 512, ++s->tag);
		}
	}
	for (size_t i = 0; i < count; i++)
		if (slots[i].at)
			check(slots[i].at, 512, slots[i].tag, "end");
	printf("small: all checks held beside %zu mappings\n", taken);
	return 0;
}

static int main_hole(void)
{
	const int anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
	uint8_t *object = malloc(512);
	fill(object, 512, 1);
	/* Addresses of future pages, and of one that exists. */
	for (uint8_t *at = (uint8_t *)((uintptr_t)object & ~(uintptr_t)4095); at < object + (64 << 20); at += 1 << 20) {
		for (int bytes = 4096; bytes <= 1 << 20; bytes <<= 8) {
			uint8_t *got = mmap(at, bytes, PROT_READ, anonymous, -1, 0);
			if (got == MAP_FAILED || (got < object + (1ull << 39) && got + bytes > object))
				DIE("a mapping of %d bytes wished at %p lies at %p: %m", bytes, (void *)at, (void *)got);
			munmap(got, bytes);
			if (mmap(at, bytes, PROT_READ, anonymous | MAP_FIXED, -1, 0) != MAP_FAILED)
				DIE("a mapping lies at %p", (void *)at);
			if (mmap(at, bytes, PROT_READ, anonymous | MAP_FIXED_NOREPLACE, -1, 0) != MAP_FAILED)
				DIE("a mapping lies at %p", (void *)at);
		}
		void *other = mmap(NULL, 1 << 20, PROT_READ, anonymous, -1, 0);
		if (mremap(other, 1 << 20, 1 << 20, MREMAP_MAYMOVE | MREMAP_FIXED, at) != MAP_FAILED)
			DIE("a mapping was moved to %p", (void *)at);
		munmap(other, 1 << 20);
		int segment = shmget(IPC_PRIVATE, 4096, 0600);
		if (segment >= 0 && shmat(segment, at, 0) != (void *)-1)
			DIE("a segment lies at %p", (void *)at);
		shmctl(segment, IPC_RMID, NULL);
	}
	for (int i = 0; i < 100000; i++)
		fill(malloc(512), 512, i);
	check(object, 512, 1, "object");
	puts("small: nothing else lies there");
	return 0;
}

static int main_files(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_FSIZE, &limit))
		DIE("getrlimit: %m");
	limit.rlim_cur = 65536;
	if (!setrlimit(RLIMIT_FSIZE, &limit) || errno != EPERM)
		DIE("the limit was set: %m");
	if (!prlimit(0, RLIMIT_FSIZE, &limit, NULL))
		DIE("the limit was set");
	limit.rlim_cur = 1ull << 40;
	if (setrlimit(RLIMIT_FSIZE, &limit))
		DIE("a harmless limit: %m");
	return main_lost(12, false);
}

static int main_order(size_t count)
{
	uint8_t **objects = shared(count * sizeof *objects);
	for (size_t i = 0; i < count; i++) {
		objects[i] = malloc(512);
		if (!objects[i])
			DIE("malloc: %m");
		fill(objects[i], 512, i);
	}
	for (size_t i = 0; i < 2 * count; i++)
		check(objects[i % count], 512, i % count, "in order");
	puts("small: all are right");
	return 0;
}

static int main_free(const char *how)
{
	uint8_t *volatile large = malloc(512), *volatile tiny = malloc(24), *volatile at = large;
	if (!strcmp(how, "double"))
		free(large);
	else if (!strcmp(how, "double-small"))
		free(at = tiny);
	else if (!strcmp(how, "interior"))
		at = tiny + 8;
	else if (!strcmp(how, "never"))
		at = large + (256 << 20);
	else if (!strcmp(how, "stale"))
		at = (uint8_t *)realloc(large, 3000) ? large : NULL;
	free(at);
	puts("small: nothing has happened");
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 5 && !strcmp(argv[1], "churn")) {
		seed = strtoull(argv[4], NULL, 10);
		return main_churn(strtoul(argv[2], NULL, 10), atof(argv[3]));
	}
	if (argc == 3 && !strcmp(argv[1], "lost"))
		return main_lost(strtoul(argv[2], NULL, 10), false);
	if (argc == 3 && !strcmp(argv[1], "die"))
		return main_lost(strtoul(argv[2], NULL, 10), true);
	if (argc == 3 && !strcmp(argv[1], "fill"))
		return main_fill(strtoul(argv[2], NULL, 10));
	if (argc == 3 && !strcmp(argv[1], "order"))
		return main_order(strtoul(argv[2], NULL, 10));
	if (argc == 3 && !strcmp(argv[1], "maps"))
		return main_maps(strtoul(argv[2], NULL, 10));
	if (argc == 2 && !strcmp(argv[1], "hole"))
		return main_hole();
	if (argc == 2 && !strcmp(argv[1], "files"))
		return main_files();
	if (argc == 3 && !strcmp(argv[1], "free"))
		return main_free(argv[2]);
	dprintf(2, "usage: small churn MIB SECONDS SEED | lost MIB | die MIB | fill BYTES | order COUNT | maps LEFT | hole | files | free HOW\n");
	return 2;
}
