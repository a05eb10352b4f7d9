/* The torture program of the live pager: every part uses managed memory in one way that is hard for a
 * pager, and checks each byte.
 *
 * usage: torture [--mib N] [--seconds S] [--threads T] [--seed X] [--only PART[,PART...]] [--list]
 *
 * Exit status 0 only if every check held. A failing check prints part, address, the expected
 * and the found value, and the seed. Without a pager the program tests itself. A seed fixes the
 * operations of each thread, not their interleaving.
 */
#include "torture.h"

#include <errno.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <time.h>

struct options opt = {.mib = 64, .seconds = 5, .threads = 3};
uint64_t *absent_pages;

static const struct {
	const char *name;
	void (*run)(void);
} parts[] = {
	{"rewrite", part_rewrite}, {"zero", part_zero},	      {"fork", part_fork},
	{"syscalls", part_syscalls}, {"remap", part_remap},   {"signals", part_signals},
	{"forking", part_forking}, {"protect", part_protect},
	{"guard", part_guard},
	{"alloc", part_alloc},	   {"threads", part_threads}, {"exit", part_exit},
	{"table", part_table},
};
enum { PART_COUNT = sizeof parts / sizeof parts[0] };

static _Noreturn void usage(const char *problem)
{
	fprintf(stderr,
		"torture: %s\nusage: torture [--mib N] [--seconds S] [--threads T] [--seed X] "
		"[--only PART[,PART...]] [--list]\n",
		problem);
	exit(2);
}

static bool selected(const char *only, const char *name)
{
	if (!only)
		return true;
	size_t length = strlen(name);
	for (const char *at = only; (at = strstr(at, name)) != NULL; at += length)
		if ((at == only || at[-1] == ',') && (at[length] == ',' || at[length] == 0))
			return true;
	return false;
}

int main(int argc, char **argv)
{
	const char *only = NULL, *child = NULL;
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	opt.seed = (uint64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
	opt.self = "/proc/self/exe";
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--list")) {
			for (int k = 0; k < PART_COUNT; k++)
				puts(parts[k].name);
			return 0;
		}
		if (i + 1 == argc)
			usage("an option without its value, or an unknown one");
		char *value = argv[i + 1];
		if (!strcmp(argv[i], "--mib"))
			opt.mib = strtoul(value, NULL, 0);
		else if (!strcmp(argv[i], "--seconds"))
			opt.seconds = strtod(value, NULL);
		else if (!strcmp(argv[i], "--threads"))
			opt.threads = atoi(value);
		else if (!strcmp(argv[i], "--seed"))
			opt.seed = strtoull(value, NULL, 0);
		else if (!strcmp(argv[i], "--only"))
			only = value;
		else if (!strcmp(argv[i], "--child"))
			child = value;
		else
			usage(argv[i]);
		i++;
	}
	if (opt.mib < 4 || opt.threads < 1 || opt.threads > 64 || opt.seconds <= 0)
		usage("--mib from 4, --threads from 1 to 64, --seconds above 0");
	absent_pages = unmanaged_shared(PAGE);
	if (child)
		return child_main(child);

	int ran = 0;
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("torture: seed %llu, %zu MiB, %d threads, %g s a part\n",
	       (unsigned long long)opt.seed, opt.mib, opt.threads, opt.seconds);
	for (int k = 0; k < PART_COUNT; k++) {
		if (!selected(only, parts[k].name))
			continue;
		double start = now_seconds();
		*absent_pages = 0;
		parts[k].run();
		printf("torture: %s ok in %.1f s, %llu absent pages seen\n", parts[k].name,
		       now_seconds() - start, (unsigned long long)*absent_pages);
		ran++;
	}
	if (!ran)
		usage("no such part; --list names them");
	printf("torture: all checks held\n");
	return 0;
}

int child_main(const char *name)
{
	if (!strncmp(name, "exit-", 5))
		return exit_child(name + 5);
	return fork_child(name);
}

/* ---- generator ---- */
struct rng rng_new(uint64_t stream)
{
	return (struct rng){opt.seed * 0x9E3779B97F4A7C15ull ^ stream * 0xD1B54A32D192ED03ull};
}

uint64_t rng_next(struct rng *r)
{
	uint64_t z = (r->state += 0x9E3779B97F4A7C15ull);
	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
	z = (z ^ z >> 27) * 0x94D049BB133111EBull;
	return z ^ z >> 31;
}

/* ---- stamped pages ---- */
enum { WORDS = PAGE / 8, HEAD = 3 }; /* number, generation, checksum; then the body */

static uint64_t checksum(const uint64_t *w)
{
	uint64_t sum = w[0] * 31 + w[1];
	for (int i = HEAD; i < WORDS; i++)
		sum = (sum ^ w[i]) * 0x100000001B3ull + (sum >> 29);
	return sum;
}

static uint64_t body_word(uint64_t number, uint64_t generation, int i)
{
	uint64_t z = number * 0x9E3779B97F4A7C15ull + generation * 0xC2B2AE3D27D4EB4Full;
	return (z + i) * 0xD6E8FEB86659FD93ull ^ z >> 31;
}

void page_stamp(void *page, uint64_t number, uint64_t generation)
{
	volatile uint64_t *v = page;
	uint64_t *w = page;
	v[0] = number;
	v[1] = generation;
	for (int i = HEAD; i < WORDS; i++)
		w[i] = body_word(number, generation, i);
	v[2] = checksum(w);
}

void page_check(const char *part, const void *page, uint64_t number, uint64_t generation)
{
	const uint64_t *w = page;
	if (w[0] != number || w[1] != generation)
		fail(part, page,
		     "page %llu generation %llu; found page %llu generation %llu%s",
		     (unsigned long long)number, (unsigned long long)generation,
		     (unsigned long long)w[0], (unsigned long long)w[1],
		     page_is_zero(page) ? " (all zeros)" : "");
	if (w[2] == checksum(w))
		return;
	for (int i = HEAD; i < WORDS; i++)
		if (w[i] != body_word(number, generation, i))
			fail(part, w + i,
			     "page %llu generation %llu, word %d %#llx; found %#llx (head is right)",
			     (unsigned long long)number, (unsigned long long)generation, i,
			     (unsigned long long)body_word(number, generation, i),
			     (unsigned long long)w[i]);
	fail(part, page, "page %llu generation %llu checksum %#llx; found %#llx",
	     (unsigned long long)number, (unsigned long long)generation,
	     (unsigned long long)checksum(w), (unsigned long long)w[2]);
}

bool page_is_zero(const void *page)
{
	const uint64_t *w = page;
	uint64_t any = 0;
	for (int i = 0; i < WORDS; i++)
		any |= w[i];
	return any == 0;
}

void zero_check(const char *part, const void *page, uint64_t number)
{
	if (page_is_zero(page))
		return;
	const volatile uint64_t *w = page;
	int i = 0;
	while (i < WORDS - 1 && w[i] == 0)
		i++;
	fail(part, (const void *)(w + i),
	     "zeros in page %llu; found words %#llx %#llx %#llx, first that is not zero at %d: %#llx",
	     (unsigned long long)number, (unsigned long long)w[0], (unsigned long long)w[1],
	     (unsigned long long)w[2], i, (unsigned long long)w[i]);
}

static uint8_t byte_of(uint64_t tag, size_t offset)
{
	return (uint8_t)((tag * 0x9E3779B97F4A7C15ull + (offset >> 3) * 0xD6E8FEB86659FD93ull) >>
			 (8 * (offset & 7)));
}

void bytes_fill(void *at, size_t bytes, uint64_t tag)
{
	uint8_t *p = at;
	size_t i = 0;
	for (; i + 8 <= bytes; i += 8) {
		uint64_t word = tag * 0x9E3779B97F4A7C15ull + (i >> 3) * 0xD6E8FEB86659FD93ull;
		memcpy(p + i, &word, 8);
	}
	for (; i < bytes; i++)
		p[i] = byte_of(tag, i);
}

void bytes_check(const char *part, const void *at, size_t bytes, uint64_t tag)
{
	const uint8_t *p = at;
	for (size_t i = 0; i < bytes;) {
		uint64_t word = tag * 0x9E3779B97F4A7C15ull + (i >> 3) * 0xD6E8FEB86659FD93ull;
		if (i + 8 <= bytes && !memcmp(p + i, &word, 8)) {
			i += 8;
			continue;
		}
		if (p[i] != byte_of(tag, i))
			fail(part, p + i, "byte %zu of %zu with tag %#llx is %#x; found %#x", i,
			     bytes, (unsigned long long)tag, byte_of(tag, i), p[i]);
		i++;
	}
}

/* ---- memory ---- */
void *managed(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		fail("memory", NULL, "mmap of %zu bytes works; errno: %m", bytes);
	return p;
}

void *unmanaged_shared(size_t bytes)
{
	char name[] = "/tmp/torture-XXXXXX";
	int fd = mkstemp(name);
	if (fd < 0 || unlink(name) || ftruncate(fd, (off_t)bytes))
		fail("memory", NULL, "a file in /tmp; errno: %m");
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		fail("memory", NULL, "mmap of a file of %zu bytes; errno: %m", bytes);
	close(fd);
	return p;
}

void churn(void)
{
	/* One thread at a time: the store must hold the data and one ballast. */
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	if (pthread_mutex_trylock(&lock))
		return;
	size_t bytes = opt.mib << 20;
	uint8_t *ballast = managed(bytes);
	for (size_t i = 0; i < bytes; i += PAGE)
		*(volatile uint64_t *)(ballast + i) = i + 1;
	munmap(ballast, bytes);
	pthread_mutex_unlock(&lock);
}

void make_absent(void *at, size_t bytes)
{
	static _Atomic unsigned calls;
	if (calls++ % 64 == 7)
		churn();
	uintptr_t first = (uintptr_t)at & ~(uintptr_t)(PAGE - 1);
	uintptr_t last = ((uintptr_t)at + bytes + PAGE - 1) & ~(uintptr_t)(PAGE - 1);
	madvise((void *)first, last - first, MADV_PAGEOUT);
	count_absent((void *)first, last - first);
}

void count_absent(const void *at, size_t bytes)
{
	unsigned char in_ram[256];
	uintptr_t first = (uintptr_t)at & ~(uintptr_t)(PAGE - 1);
	size_t pages = ((uintptr_t)at + bytes - first + PAGE - 1) / PAGE;
	for (size_t done = 0; done < pages; done += sizeof in_ram) {
		size_t n = pages - done < sizeof in_ram ? pages - done : sizeof in_ram;
		if (mincore((void *)(first + done * PAGE), n * PAGE, in_ram))
			return;
		for (size_t i = 0; i < n; i++)
			if (!(in_ram[i] & 1))
				__atomic_add_fetch(absent_pages, 1, __ATOMIC_RELAXED);
	}
}

/* ---- time ---- */
double now_seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

struct deadline deadline_new(void)
{
	return (struct deadline){now_seconds() + opt.seconds};
}

bool deadline_passed(const struct deadline *d)
{
	return now_seconds() >= d->at;
}

/* ---- failing ---- */
void fail(const char *part, const void *at, const char *format, ...)
{
	int cause = errno;
	char text[512];
	va_list args;
	va_start(args, format);
	errno = cause;
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	dprintf(2, "torture: FAILED in %s (pid %d) at address %p: expected %s; seed %llu\n", part,
		(int)getpid(), at, text, (unsigned long long)opt.seed);
	if (getenv("TORTURE_ABORT"))
		abort();
	_exit(1);
}

void expect_status(const char *part, pid_t child, int expected)
{
	int status = -1;
	MUST(part, child > 0);
	while (waitpid(child, &status, 0) < 0)
		MUST(part, errno == EINTR);
	/* Ignore whether a core file was written. */
	if (WIFSIGNALED(status))
		status = WTERMSIG(status);
	if (status != expected)
		fail(part, NULL, "wait status %#x of child %d; found %#x", expected, (int)child,
		     status);
}

void run_threads(const char *part, int thread_count, void *(*body)(void *))
{
	pthread_t thread[64];
	for (intptr_t i = 0; i < thread_count; i++)
		MUST(part, pthread_create(&thread[i], NULL, body, (void *)i) == 0);
	for (int i = 0; i < thread_count; i++)
		MUST(part, pthread_join(thread[i], NULL) == 0);
}
