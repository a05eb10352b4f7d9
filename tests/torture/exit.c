/* exit: every way to end a program, with dirty pages, working threads and pages on flash. The parent
 * checks the wait status; the caller of this program checks that nothing is left behind.
 */
#include "torture.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

static const char *const PART = "exit";

static const struct {
	const char *name;
	int status; /* as waitpid gives it, without the core flag */
} ways[] = {
	{"exit", 3 << 8},	{"_exit", 4 << 8},	 {"return", 5 << 8},
	{"quick_exit", 6 << 8}, {"abort", SIGABRT},	 {"kill", SIGKILL},
	{"term", SIGTERM},	{"segv", SIGSEGV},	 {"pthread_exit", 0},
	{"thread-exit", 8 << 8}, {"exec", 0},		 {"fork-exit", 9 << 8},
	{"atexit", 11 << 8},	{"empty", 0},
};
enum { WAY_COUNT = sizeof ways / sizeof ways[0] };

static uint8_t *data;
static size_t page_count;
static volatile int *volatile nowhere = (volatile int *)8;

static size_t rounds[2]; /* of each busy thread */

static void *busy_thread(void *index)
{
	struct rng r = rng_new(700 + (intptr_t)index);
	while (data) {
		size_t i = rng_below(&r, page_count / 4) * 4 + (intptr_t)index;
		page_check(PART, data + i * PAGE, i, 1);
		page_stamp(data + i * PAGE, i, 1);
		__atomic_fetch_add(&rounds[(intptr_t)index], 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

/* Whether the main thread has ended: /proc/self/stat has its state. */
static int main_has_ended(void)
{
	char line[64] = "";
	int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
	MUST(PART, fd >= 0 && read(fd, line, sizeof line - 1) > 0);
	close(fd);
	const char *name_end = strrchr(line, ')');
	return name_end && name_end[2] == 'Z';
}

static void *last_thread(void *unused)
{
	(void)unused;
	for (int looks = 0; !main_has_ended(); looks++) {
		MUST(PART, looks < 60000);
		usleep(1000);
	}
	for (size_t i = 0; i < page_count; i++)
		page_check(PART, data + i * PAGE, i, 1);
	exit(0);
}

static void *exiting_thread(void *unused)
{
	(void)unused;
	exit(8);
}

static void check_at_exit(void)
{
	for (size_t i = 0; i < page_count; i += 3)
		page_check(PART, data + i * PAGE, i, 1);
}

int exit_child(const char *name)
{
	struct rlimit no_core = {0, 0};
	setrlimit(RLIMIT_CORE, &no_core);
	if (!strcmp(name, "empty"))
		return 0;
	page_count = (opt.mib << 20) / PAGE;
	data = managed(page_count * PAGE);
	for (size_t i = 0; i < page_count; i++)
		page_stamp(data + i * PAGE, i, 1);
	make_absent(data, page_count / 2 * PAGE);
	pthread_t thread;
	if (!strcmp(name, "pthread_exit")) {
		MUST(PART, pthread_create(&thread, NULL, last_thread, NULL) == 0);
		pthread_exit(NULL);
	}
	for (intptr_t i = 0; i < 2; i++)
		MUST(PART, pthread_create(&thread, NULL, busy_thread, (void *)i) == 0);
	for (int i = 0; i < 2; i++)
		while (__atomic_load_n(&rounds[i], __ATOMIC_RELAXED) < 3)
			usleep(100);
	if (!strcmp(name, "exit"))
		exit(3);
	if (!strcmp(name, "_exit"))
		_exit(4);
	if (!strcmp(name, "return"))
		return 5;
	if (!strcmp(name, "quick_exit"))
		quick_exit(6);
	if (!strcmp(name, "abort"))
		abort();
	if (!strcmp(name, "kill"))
		kill(getpid(), SIGKILL);
	if (!strcmp(name, "term"))
		raise(SIGTERM);
	if (!strcmp(name, "segv"))
		*nowhere = 1;
	if (!strcmp(name, "thread-exit")) {
		MUST(PART, pthread_create(&thread, NULL, exiting_thread, NULL) == 0);
		pthread_join(thread, NULL);
	}
	if (!strcmp(name, "exec"))
		execl(opt.self, "torture", "--child", "exit-empty", (char *)NULL);
	if (!strcmp(name, "fork-exit")) {
		pid_t child = fork();
		if (child == 0) {
			check_at_exit();
			exit(12);
		}
		expect_status(PART, child, 12 << 8);
		check_at_exit();
		exit(9);
	}
	if (!strcmp(name, "atexit")) {
		atexit(check_at_exit);
		exit(11);
	}
	return 97;
}

void part_exit(void)
{
	struct deadline until = deadline_new();
	do {
		for (int k = 0; k < WAY_COUNT; k++) {
			char child[64];
			snprintf(child, sizeof child, "exit-%s", ways[k].name);
			pid_t pid = spawn_self(PART, child);
			int status;
			while (waitpid(pid, &status, 0) < 0)
				MUST(PART, errno == EINTR);
			if (WIFSIGNALED(status))
				status = WTERMSIG(status);
			if (status != ways[k].status)
				fail(PART, NULL, "wait status %#x after %s; found %#x", ways[k].status,
				     ways[k].name, status);
		}
	} while (!deadline_passed(&until));
}
