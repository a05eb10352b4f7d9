/* fork: parent, children and grandchildren verify every page, diverge and verify again, while
 * threads of the parent keep rewriting; then vfork with exec, posix_spawn and popen, where the
 * child is this program again, with a pager of its own.
 *
 * forking: one thread only forks, while others fault on memory that is absent, zeros or on flash:
 * their faults meet a pager that quiesces.
 *
 * The expected contents depend on the process: even pages have one generation, odd ones another, and
 * both generations are on the stack, which a fork copies.
 */
#include "torture.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

static const char *const PART = "fork";

struct view {
	uint64_t even, odd;
};

static uint8_t *data;
static size_t page_count;
static _Atomic bool writers_stop;

static uint64_t generation_of(const struct view *v, size_t i)
{
	return i % 2 ? v->odd : v->even;
}

static void verify_all(const struct view *v)
{
	for (size_t i = 0; i < page_count; i++)
		page_check(PART, data + i * PAGE, i, generation_of(v, i));
}

static void verify_some(const struct view *v, struct rng *r, size_t n)
{
	for (size_t k = 0; k < n; k++) {
		size_t i = rng_below(r, page_count);
		page_check(PART, data + i * PAGE, i, generation_of(v, i));
	}
}

/* Stamps the pages of one parity with a generation that no other process uses. */
static void diverge(struct view *v, bool odd, uint64_t generation)
{
	for (size_t i = odd; i < page_count; i += 2)
		page_stamp(data + i * PAGE, i, generation);
	if (odd)
		v->odd = generation;
	else
		v->even = generation;
}

/* Forks `depth` levels deep; parent and child verify at each level. */
static void descend(struct view v, int depth, struct rng r)
{
	verify_some(&v, &r, page_count / 4);
	diverge(&v, depth % 2, v.even + v.odd + 1000 * (depth + 1));
	if (depth > 0) {
		pid_t child = fork();
		MUST(PART, child >= 0);
		if (child == 0) {
			r = rng_new(9000 + depth);
			descend(v, depth - 1, r);
			_exit(0);
		}
		diverge(&v, depth % 2 == 0, v.even + v.odd + 7);
		verify_some(&v, &r, page_count / 2);
		expect_status(PART, child, 0);
	}
	/* Memory that only this process has. */
	size_t own = page_count / 8 + 1;
	uint8_t *more = managed(own * PAGE);
	for (size_t i = 0; i < own; i++)
		page_stamp(more + i * PAGE, i, 77);
	verify_all(&v);
	for (size_t i = 0; i < own; i++)
		page_check(PART, more + i * PAGE, i, 77);
	munmap(more, own * PAGE);
}

static void *writer_thread(void *index)
{
	size_t own = page_count / 8 + 1;
	uint8_t *mine = managed(own * PAGE);
	struct rng r = rng_new(300 + (intptr_t)index);
	for (size_t i = 0; i < own; i++)
		page_stamp(mine + i * PAGE, i, 1);
	uint64_t *generation = unmanaged_shared(own * 8);
	while (!writers_stop) {
		size_t i = rng_below(&r, own);
		page_check(PART, mine + i * PAGE, i, generation[i] + 1);
		generation[i]++;
		page_stamp(mine + i * PAGE, i, generation[i] + 1);
	}
	for (size_t i = 0; i < own; i++)
		page_check(PART, mine + i * PAGE, i, generation[i] + 1);
	munmap(mine, own * PAGE);
	munmap(generation, own * 8);
	return NULL;
}

static void round_of_forks(struct view *v, struct rng *r)
{
	/* Three children at once, each with its own generations. */
	pid_t child[3];
	for (int c = 0; c < 3; c++) {
		child[c] = fork();
		MUST(PART, child[c] >= 0);
		if (child[c] == 0) {
			struct rng own = rng_new(4000 + c);
			descend(*v, c, own);
			_exit(10 + c);
		}
		verify_some(v, r, page_count / 8);
		diverge(v, rng_one_in(r, 2), v->even + v->odd + 1);
	}
	verify_all(v);
	for (int c = 0; c < 3; c++)
		expect_status(PART, child[c], (10 + c) << 8);
	verify_all(v);

	/* A parent that ends at once: the orphan verifies and reports through a pipe. */
	int fds[2];
	MUST(PART, pipe(fds) == 0);
	pid_t middle = fork();
	MUST(PART, middle >= 0);
	if (middle == 0) {
		pid_t orphan = fork();
		MUST(PART, orphan >= 0);
		if (orphan == 0) {
			verify_all(v);
			MUST(PART, write(fds[1], "v", 1) == 1);
			_exit(0);
		}
		_exit(0);
	}
	close(fds[1]);
	expect_status(PART, middle, 0);
	char byte = 0;
	ssize_t got;
	while ((got = read(fds[0], &byte, 1)) < 0 && errno == EINTR)
		;
	if (got != 1 || byte != 'v')
		fail(PART, NULL, "a byte from the orphan; found %zd bytes", got);
	close(fds[0]);
}

static void programs(void)
{
	extern char **environ;
	char status_text[16];
	expect_status(PART, spawn_self(PART, "rewrite"), 7 << 8);

	/* vfork and exec, with arguments in evicted managed memory. */
	char *name = managed(16 * PAGE);
	strcpy(name + 5 * PAGE, "rewrite");
	char **words = (char **)(name + 9 * PAGE);
	snprintf(status_text, sizeof status_text, "%llu", (unsigned long long)opt.seed);
	words[0] = "torture", words[1] = "--seed", words[2] = status_text;
	words[3] = "--mib", words[4] = "8", words[5] = "--child", words[6] = name + 5 * PAGE;
	words[7] = NULL;
	make_absent(name, 16 * PAGE);
	pid_t child = vfork();
	if (child == 0) {
		execve(opt.self, words, environ);
		_exit(99);
	}
	expect_status(PART, child, 7 << 8);
	if (strcmp(name + 5 * PAGE, "rewrite"))
		fail(PART, name, "\"rewrite\"; found \"%s\"", name + 5 * PAGE);
	munmap(name, 16 * PAGE);

	FILE *from = popen("cat /proc/self/stat | wc -l", "r");
	char line[64] = "";
	MUST(PART, from && fgets(line, sizeof line, from));
	MUST(PART, pclose(from) == 0);
	if (atoi(line) != 1)
		fail(PART, NULL, "one line of popen; found \"%s\"", line);
	int status = system("exit 5");
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 5)
		fail(PART, NULL, "status 5 of system(); found %#x", status);
}

pid_t spawn_self(const char *part, const char *child_name)
{
	extern char **environ;
	pid_t child;
	char seed[32];
	snprintf(seed, sizeof seed, "%llu", (unsigned long long)opt.seed);
	char *words[] = {"torture", "--seed", seed, "--mib", "8", "--child", (char *)child_name, NULL};
	int problem = posix_spawn(&child, opt.self, NULL, NULL, words, environ);
	if (problem)
		fail(part, NULL, "posix_spawn of %s; error %d", opt.self, problem);
	return child;
}

/* --child rewrite: stamps and verifies its own memory, forks once, and ends with 7. */
int fork_child(const char *name)
{
	if (strcmp(name, "rewrite"))
		return 98;
	page_count = (opt.mib << 20) / PAGE;
	data = managed(page_count * PAGE);
	struct view v = {0, 0};
	diverge(&v, false, 5);
	diverge(&v, true, 6);
	pid_t child = fork();
	if (child == 0) {
		verify_all(&v);
		exit(0);
	}
	diverge(&v, true, 8);
	verify_all(&v);
	expect_status(PART, child, 0);
	return 7;
}

static void *stack_thread(void *unused)
{
	(void)unused;
	pid_t child = fork();
	MUST(PART, child >= 0);
	if (child == 0)
		_exit(23);
	expect_status(PART, child, 23 << 8);
	return NULL;
}

/* Forks of threads with small stacks side by side: near the top of each is the guard page of the next. */
static void small_stacks(void)
{
	enum { STACKS = 4 };
	pthread_t thread[STACKS];
	pthread_attr_t attributes;
	MUST(PART, pthread_attr_init(&attributes) == 0);
	MUST(PART, pthread_attr_setstacksize(&attributes, 128 << 10) == 0);
	for (int i = 0; i < STACKS; i++)
		MUST(PART, pthread_create(&thread[i], &attributes, stack_thread, NULL) == 0);
	for (int i = 0; i < STACKS; i++)
		MUST(PART, pthread_join(thread[i], NULL) == 0);
	pthread_attr_destroy(&attributes);
}

void part_fork(void)
{
	page_count = (opt.mib << 20) / PAGE / 2;
	data = managed(page_count * PAGE);
	struct view v = {0, 0};
	struct rng r = rng_new(1);
	diverge(&v, false, 1);
	diverge(&v, true, 2);
	struct deadline until = deadline_new();

	/* First without, then with working threads in the parent. */
	round_of_forks(&v, &r);
	programs();
	pthread_t writer[64];
	writers_stop = false;
	for (intptr_t i = 0; i < opt.threads; i++)
		MUST(PART, pthread_create(&writer[i], NULL, writer_thread, (void *)i) == 0);
	do {
		round_of_forks(&v, &r);
		programs();
		small_stacks();
	} while (!deadline_passed(&until));
	writers_stop = true;
	for (int i = 0; i < opt.threads; i++)
		MUST(PART, pthread_join(writer[i], NULL) == 0);
	verify_all(&v);
	munmap(data, page_count * PAGE);
}

static _Atomic bool forking_over;

/* Cycles a few pages through zeros, numbers and eviction. */
static void *filler_thread(void *index)
{
	enum { PAGES = 128, STEP = 37 };
	struct rng r = rng_new(700 + (intptr_t)index);
	uint8_t *mine = managed(PAGES * PAGE);
	for (uint64_t generation = 1; !forking_over; generation++) {
		switch (rng_below(&r, 3)) {
		case 0:
			memset(mine, 0, PAGES * PAGE);
			break;
		case 1:
			MUST("forking", madvise(mine, PAGES * PAGE, MADV_DONTNEED) == 0);
			break;
		}
		madvise(mine, PAGES * PAGE, MADV_PAGEOUT);
		/* Here and below the delay is arbitrary: a fork should find pages in all states. */
		usleep(300);
		for (size_t i = 0; i < PAGES; i++)
			page_stamp(mine + i * STEP % PAGES * PAGE, i * STEP % PAGES, generation);
		madvise(mine, PAGES * PAGE, MADV_PAGEOUT);
		usleep(300);
		for (size_t i = 0; i < PAGES; i++)
			page_check("forking", mine + i * PAGE, i, generation);
	}
	munmap(mine, PAGES * PAGE);
	return NULL;
}

void part_forking(void)
{
	struct deadline until = deadline_new();
	pthread_t filler[64];
	forking_over = false;
	for (intptr_t i = 0; i < opt.threads; i++)
		MUST("forking", pthread_create(&filler[i], NULL, filler_thread, (void *)i) == 0);
	do {
		pid_t child = fork();
		MUST("forking", child >= 0);
		if (child == 0)
			_exit(0);
		expect_status("forking", child, 0);
	} while (!deadline_passed(&until));
	forking_over = true;
	for (int i = 0; i < opt.threads; i++)
		MUST("forking", pthread_join(filler[i], NULL) == 0);
}
