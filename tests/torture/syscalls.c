/* syscalls: system calls with arguments in absent pages. Each call repeatedly uses memory that was
 * just evicted; its result and data are checked. mincore counts the pages that were really absent.
 */
#include "torture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>

static const char *const PART = "syscalls";
enum { AREA_PAGES = 256, BLOCK = 16 * PAGE };

/* A thread's managed memory and random numbers. */
struct area {
	uint8_t *at;
	struct rng r;
	int index;
};

/* A random place in the upper half of the area; the lower half has fixed places. */
static uint8_t *place(struct area *a, size_t bytes)
{
	size_t room = AREA_PAGES / 2 * PAGE - bytes;
	return a->at + AREA_PAGES / 2 * PAGE + rng_below(&a->r, room / 64) * 64;
}

static void absent(struct area *a)
{
	make_absent(a->at, AREA_PAGES * PAGE);
}

static int temporary_file(int flags)
{
	char name[] = "/var/tmp/torture-XXXXXX";
	int fd = mkostemp(name, flags);
	MUST(PART, fd >= 0 && unlink(name) == 0);
	return fd;
}

/* ---- files ---- */
static void file_calls(struct area *a)
{
	int fd = temporary_file(0);
	uint64_t tag = rng_next(&a->r);
	size_t bytes = 1 + rng_below(&a->r, BLOCK * 4);
	uint8_t *out = a->at + rng_below(&a->r, 5000), *in = a->at + 128 * PAGE + rng_below(&a->r, 5000);

	bytes_fill(out, bytes, tag);
	absent(a);
	MUST(PART, write(fd, out, bytes) == (ssize_t)bytes);
	absent(a);
	MUST(PART, pread(fd, in, bytes, 0) == (ssize_t)bytes);
	bytes_check(PART, in, bytes, tag);
	memset(in, 0, bytes);
	absent(a);
	MUST(PART, lseek(fd, 0, SEEK_SET) == 0 && read(fd, in, bytes) == (ssize_t)bytes);
	bytes_check(PART, in, bytes, tag);
	absent(a);
	MUST(PART, pwrite(fd, in, bytes, 4096) == (ssize_t)bytes);

	/* Absent vectors of absent pieces, across page borders. */
	enum { PIECES = 40 };
	struct iovec *v = (struct iovec *)(a->at + 250 * PAGE + rng_below(&a->r, 200) * 16);
	size_t total = 0;
	for (int i = 0; i < PIECES; i++) {
		v[i].iov_base = a->at + (size_t)i * 6 * PAGE + rng_below(&a->r, PAGE);
		v[i].iov_len = rng_below(&a->r, 2 * PAGE);
		bytes_fill(v[i].iov_base, v[i].iov_len, tag + i);
		total += v[i].iov_len;
	}
	MUST(PART, ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0);
	absent(a);
	MUST(PART, writev(fd, v, PIECES) == (ssize_t)total);
	for (int i = 0; i < PIECES; i++)
		memset(v[i].iov_base, 0x55, v[i].iov_len);
	absent(a);
	MUST(PART, lseek(fd, 0, SEEK_SET) == 0 && readv(fd, v, PIECES) == (ssize_t)total);
	for (int i = 0; i < PIECES; i++)
		bytes_check(PART, v[i].iov_base, v[i].iov_len, tag + i);
	absent(a);
	MUST(PART, preadv(fd, v, PIECES, 0) == (ssize_t)total);
	for (int i = 0; i < PIECES; i++)
		bytes_check(PART, v[i].iov_base, v[i].iov_len, tag + i);

	/* Offsets in absent memory. */
	off_t *offset = (off_t *)place(a, 64);
	*offset = 0;
	int to = temporary_file(0);
	absent(a);
	size_t want = total < BLOCK ? total : BLOCK;
	MUST(PART, sendfile(to, fd, offset, want) == (ssize_t)want && *offset == (off_t)want);
	close(to);
	close(fd);
}

static void direct_calls(struct area *a)
{
	int fd = temporary_file(O_DIRECT);
	uint64_t tag = rng_next(&a->r);
	uint8_t *out = a->at + rng_below(&a->r, 16) * PAGE;
	uint8_t *in = a->at + (128 + rng_below(&a->r, 16)) * PAGE;
	size_t bytes = (1 + rng_below(&a->r, 64)) * PAGE;
	bytes_fill(out, bytes, tag);
	absent(a);
	ssize_t done = write(fd, out, bytes);
	if (done < 0 && errno == EINVAL) {
		close(fd); /* a file system without direct I/O */
		return;
	}
	MUST(PART, done == (ssize_t)bytes);
	absent(a);
	MUST(PART, pread(fd, in, bytes, 0) == (ssize_t)bytes);
	bytes_check(PART, in, bytes, tag);
	bytes_check(PART, out, bytes, tag);
	/* Read over pages with other contents, half of them in RAM. */
	bytes_fill(in, bytes, ~tag);
	make_absent(in, bytes / 2);
	MUST(PART, pread(fd, in, bytes, 0) == (ssize_t)bytes);
	absent(a);
	bytes_check(PART, in, bytes, tag);
	close(fd);
}

/* ---- sockets and pipes ---- */
static void socket_calls(struct area *a)
{
	int s[2], kind = rng_one_in(&a->r, 2) ? SOCK_STREAM : SOCK_DGRAM;
	MUST(PART, socketpair(AF_UNIX, kind, 0, s) == 0);
	uint64_t tag = rng_next(&a->r);
	size_t bytes = 1 + rng_below(&a->r, 8 * PAGE);
	uint8_t *out = a->at + rng_below(&a->r, 5000), *in = a->at + 64 * PAGE + rng_below(&a->r, 5000);
	struct {
		struct msghdr head;
		struct iovec v[2];
		union {
			struct cmsghdr align;
			char bytes[CMSG_SPACE(sizeof(int))];
		} control;
	} *m = (void *)(a->at + 200 * PAGE);
	bytes_fill(out, bytes, tag);
	memset(m, 0, sizeof *m);
	m->v[0] = (struct iovec){out, bytes / 3};
	m->v[1] = (struct iovec){out + bytes / 3, bytes - bytes / 3};
	m->head = (struct msghdr){.msg_iov = m->v, .msg_iovlen = 2, .msg_control = &m->control,
				  .msg_controllen = sizeof m->control};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m->head);
	*c = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
			      .cmsg_len = CMSG_LEN(sizeof(int))};
	memcpy(CMSG_DATA(c), &s[0], sizeof(int));
	absent(a);
	MUST(PART, sendmsg(s[0], &m->head, 0) == (ssize_t)bytes);
	memset(m, 0, sizeof *m);
	m->v[0] = (struct iovec){in, bytes / 2};
	m->v[1] = (struct iovec){in + bytes / 2, bytes - bytes / 2};
	m->head = (struct msghdr){.msg_iov = m->v, .msg_iovlen = 2, .msg_control = &m->control,
				  .msg_controllen = sizeof m->control};
	absent(a);
	MUST(PART, recvmsg(s[1], &m->head, 0) == (ssize_t)bytes);
	bytes_check(PART, in, bytes, tag);
	c = CMSG_FIRSTHDR(&m->head);
	int passed;
	MUST(PART, c && c->cmsg_type == SCM_RIGHTS);
	memcpy(&passed, CMSG_DATA(c), sizeof passed);
	MUST(PART, fcntl(passed, F_GETFD) >= 0);
	close(passed);
	absent(a);
	MUST(PART, send(s[1], in, bytes, 0) == (ssize_t)bytes);
	memset(out, 1, bytes);
	absent(a);
	MUST(PART, recv(s[0], out, bytes, MSG_WAITALL) == (ssize_t)bytes);
	bytes_check(PART, out, bytes, tag);
	close(s[0]), close(s[1]);
}

static void address_calls(struct area *a)
{
	struct sockaddr_in *address = (void *)place(a, 64);
	socklen_t *length = (void *)(a->at + 7 * PAGE);
	int receiver = socket(AF_INET, SOCK_DGRAM, 0), sender = socket(AF_INET, SOCK_DGRAM, 0);
	MUST(PART, receiver >= 0 && sender >= 0);
	*address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	absent(a);
	MUST(PART, bind(receiver, (void *)address, sizeof *address) == 0);
	*length = sizeof *address;
	absent(a);
	MUST(PART, getsockname(receiver, (void *)address, length) == 0 && address->sin_port);
	int port = address->sin_port;
	uint8_t *datagram = a->at + 21 * PAGE - 100;
	uint64_t tag = rng_next(&a->r);
	bytes_fill(datagram, 1000, tag);
	absent(a);
	MUST(PART, sendto(sender, datagram, 1000, 0, (void *)address, sizeof *address) == 1000);
	memset(datagram, 0, 1000);
	memset(address, 0, sizeof *address);
	*length = sizeof *address;
	absent(a);
	MUST(PART, recvfrom(receiver, datagram, 1000, 0, (void *)address, length) == 1000);
	bytes_check(PART, datagram, 1000, tag);
	MUST(PART, address->sin_family == AF_INET && address->sin_port != port &&
			   *length == sizeof *address);
	int *value = (int *)place(a, 64);
	*value = 1;
	absent(a);
	MUST(PART, setsockopt(receiver, SOL_SOCKET, SO_BROADCAST, value, sizeof *value) == 0);
	close(receiver), close(sender);
}

/* Containers' profiles forbid vmsplice: only the kernel itself answers that there is no such descriptor. */
static bool may_lend(void)
{
	static bool said;
	if (vmsplice(-1, NULL, 0, 0) < 0 && errno == EBADF)
		return true;
	if (!said)
		printf("syscalls: not exercised: vmsplice (%m)\n");
	said = true;
	return false;
}

static void pipe_calls(struct area *a)
{
	int *fds = (int *)place(a, 64);
	absent(a);
	MUST(PART, pipe2(fds, O_CLOEXEC) == 0);
	int from = fds[0], to = fds[1];
	uint64_t tag = rng_next(&a->r);
	uint8_t *buffer = a->at + 50 * PAGE + rng_below(&a->r, PAGE);
	bytes_fill(buffer, 3 * PAGE, tag);
	absent(a);
	MUST(PART, write(to, buffer, 3 * PAGE) == 3 * PAGE);
	memset(buffer, 9, 3 * PAGE);
	absent(a);
	size_t got = 0;
	while (got < 3 * PAGE) {
		ssize_t n = read(from, buffer + got, 3 * PAGE - got);
		MUST(PART, n > 0 || errno == EINTR);
		got += n > 0 ? n : 0;
	}
	bytes_check(PART, buffer, 3 * PAGE, tag);

	/* A pipe borrows frames: eviction must not change its contents. */
	if (may_lend()) {
		uint8_t *lent = a->at + 60 * PAGE;
		bytes_fill(lent, 4 * PAGE, tag + 1);
		struct iovec *v = (struct iovec *)(a->at + 70 * PAGE);
		*v = (struct iovec){lent, 4 * PAGE};
		absent(a);
		MUST(PART, vmsplice(to, v, 1, 0) == 4 * PAGE);
		absent(a);
		bytes_check(PART, lent, 4 * PAGE, tag + 1);
		for (got = 0; got < 4 * PAGE;) {
			ssize_t n = read(from, buffer + got, 4 * PAGE - got);
			MUST(PART, n > 0);
			got += n;
		}
		bytes_check(PART, buffer, 4 * PAGE, tag + 1);
	}

	/* epoll and poll: events in absent memory carry the registered data. */
	int poller = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event *event = (struct epoll_event *)place(a, 256);
	*event = (struct epoll_event){.events = EPOLLIN, .data.u64 = tag};
	absent(a);
	MUST(PART, epoll_ctl(poller, EPOLL_CTL_ADD, from, event) == 0);
	MUST(PART, write(to, "x", 1) == 1);
	memset(event, 0, 4 * sizeof *event);
	absent(a);
	MUST(PART, epoll_wait(poller, event, 4, 1000) == 1 && event->data.u64 == tag);
	struct pollfd *polled = (struct pollfd *)place(a, 64);
	*polled = (struct pollfd){.fd = from, .events = POLLIN};
	absent(a);
	MUST(PART, poll(polled, 1, 1000) == 1 && polled->revents == POLLIN);
	fd_set *set = (fd_set *)place(a, sizeof(fd_set));
	if (from < FD_SETSIZE) {
		FD_ZERO(set);
		FD_SET(from, set);
		absent(a);
		MUST(PART, select(from + 1, set, NULL, NULL, NULL) == 1 && FD_ISSET(from, set));
	}
	close(poller), close(from), close(to);
}

/* ---- small results ---- */
static void small_calls(struct area *a)
{
	uint8_t *p = place(a, 8192);
	absent(a);
	memset(p, 0, 300);
	absent(a);
	MUST(PART, getrandom(p, 256, 0) == 256 && (*(uint64_t *)p || *(uint64_t *)(p + 8)));
	absent(a);
	struct timespec *t = (struct timespec *)p;
	MUST(PART, syscall(SYS_clock_gettime, CLOCK_MONOTONIC, t) == 0 && t->tv_sec > 0);
	absent(a);
	MUST(PART, clock_gettime(CLOCK_REALTIME, t) == 0 && t->tv_sec > 1000000000);
	absent(a);
	MUST(PART, syscall(SYS_gettimeofday, p, NULL) == 0);
	*t = (struct timespec){0, 1000};
	absent(a);
	MUST(PART, nanosleep(t, (struct timespec *)(p + 4096)) == 0);
	absent(a);
	MUST(PART, uname((struct utsname *)p) == 0 && !strcmp((char *)p, "Linux"));
	absent(a);
	MUST(PART, times((struct tms *)p) != (clock_t)-1);
	absent(a);
	MUST(PART, getrusage(RUSAGE_SELF, (struct rusage *)p) == 0);
	absent(a);
	MUST(PART, sched_getaffinity(0, 128, (cpu_set_t *)p) == 0);
	absent(a);
	MUST(PART, getrlimit(RLIMIT_NOFILE, (struct rlimit *)p) == 0 && *(uint64_t *)p > 0);
	absent(a);
	MUST(PART, syscall(SYS_getcwd, p, 4096) > 0 && p[0] == '/');

	/* Paths in absent memory, across a page border. */
	char *path = (char *)(a->at + 30 * PAGE - 5);
	strcpy(path, "/proc/self/status");
	struct stat *s = (struct stat *)(a->at + 40 * PAGE - 30);
	absent(a);
	MUST(PART, stat(path, s) == 0 && S_ISREG(s->st_mode));
	absent(a);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	MUST(PART, fd >= 0);
	absent(a);
	MUST(PART, read(fd, p, 8000) > 100 && !memcmp(p, "Name:", 5));
	close(fd);
	strcpy(path, "/proc/self/exe");
	absent(a);
	MUST(PART, readlink(path, (char *)p, 4096) > 0 && p[0] == '/');
	absent(a);
	MUST(PART, access(path, R_OK) == 0);

	/* Signal state. */
	struct sigaction *action = (struct sigaction *)p;
	absent(a);
	MUST(PART, sigaction(SIGWINCH, NULL, action) == 0 && action->sa_handler == SIG_DFL);
	sigset_t *mask = (sigset_t *)p;
	absent(a);
	MUST(PART, pthread_sigmask(SIG_BLOCK, NULL, mask) == 0 && !sigismember(mask, SIGTERM));
	stack_t *stack = (stack_t *)p;
	memset(stack, 0xff, sizeof *stack);
	absent(a);
	MUST(PART, sigaltstack(NULL, stack) == 0 && (stack->ss_flags & SS_DISABLE));

	/* Own memory read through the kernel, and mlock. */
	uint64_t tag = rng_next(&a->r);
	uint8_t *from = a->at + 80 * PAGE + 17, *to = a->at + 90 * PAGE + 5;
	bytes_fill(from, 3 * PAGE, tag);
	struct iovec *v = (struct iovec *)(a->at + 99 * PAGE);
	v[0] = (struct iovec){to, 3 * PAGE};
	v[1] = (struct iovec){from, 3 * PAGE};
	absent(a);
	ssize_t copied = process_vm_readv(getpid(), v, 1, v + 1, 1, 0);
	if (copied >= 0 || (errno != EPERM && errno != ENOSYS)) {
		/* The kernel treats the source as another process's: a short copy is allowed. */
		MUST(PART, copied >= 0);
		bytes_check(PART, to, copied, tag);
	}
	absent(a);
	if (mlock(from, 3 * PAGE) == 0) {
		bytes_check(PART, from, 3 * PAGE, tag);
		absent(a);
		bytes_check(PART, from, 3 * PAGE, tag);
		MUST(PART, munlock(from, 3 * PAGE) == 0);
	}
}

static void child_calls(struct area *a)
{
	/* wait4 writes status and usage to absent memory; execve reads its words from it. */
	int *status = (int *)place(a, 64);
	struct rusage *usage = (struct rusage *)(a->at + 10 * PAGE - 40);
	char *words = (char *)(a->at + 20 * PAGE - 3);
	strcpy(words, "/bin/sh");
	strcpy(words + 10, "-c");
	strcpy(words + 5000, "exit 23");
	char **list = (char **)(a->at + 24 * PAGE);
	list[0] = words, list[1] = words + 10, list[2] = words + 5000, list[3] = NULL;
	extern char **environ;
	pid_t child = fork();
	MUST(PART, child >= 0);
	if (child == 0) {
		absent(a);
		execve(list[0], list, environ);
		_exit(99);
	}
	absent(a);
	pid_t got;
	while ((got = wait4(child, status, 0, usage)) < 0)
		MUST(PART, errno == EINTR);
	MUST(PART, got == child && WIFEXITED(*status) && WEXITSTATUS(*status) == 23);
}

/* ---- futex: wait and wake on a word whose page is evicted while a thread waits ---- */
struct futex_pair {
	uint32_t *word;
	_Atomic int waiting;
};

static void *futex_waiter(void *argument)
{
	struct futex_pair *pair = argument;
	pair->waiting = 1;
	while (__atomic_load_n(pair->word, __ATOMIC_ACQUIRE) == 1) {
		long done = syscall(SYS_futex, pair->word, FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0);
		MUST(PART, done == 0 || errno == EAGAIN || errno == EINTR);
	}
	return NULL;
}

static void futex_calls(struct area *a)
{
	struct futex_pair pair = {.word = (uint32_t *)place(a, 64)};
	__atomic_store_n(pair.word, 1, __ATOMIC_RELEASE);
	pthread_t waiter;
	absent(a);
	MUST(PART, pthread_create(&waiter, NULL, futex_waiter, &pair) == 0);
	while (!pair.waiting)
		sched_yield();
	absent(a);
	/* The waiter is before the call or sleeps in it: the test wants both. */
	if (rng_one_in(&a->r, 2))
		usleep(500);
	absent(a);
	__atomic_store_n(pair.word, 2, __ATOMIC_RELEASE);
	absent(a);
	MUST(PART, syscall(SYS_futex, pair.word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) >= 0);
	MUST(PART, pthread_join(waiter, NULL) == 0);

	/* A timeout in absent memory, and a mutex of pthread there. */
	struct timespec *t = (struct timespec *)(a->at + 33 * PAGE);
	*t = (struct timespec){0, 100000};
	absent(a);
	MUST(PART, syscall(SYS_futex, pair.word, FUTEX_WAIT_PRIVATE, 2, t, NULL, 0) == -1 &&
			   (errno == ETIMEDOUT || errno == EINTR));
	pthread_mutex_t *mutex = (pthread_mutex_t *)(a->at + 44 * PAGE);
	MUST(PART, pthread_mutex_init(mutex, NULL) == 0);
	absent(a);
	MUST(PART, pthread_mutex_lock(mutex) == 0);
	absent(a);
	MUST(PART, pthread_mutex_unlock(mutex) == 0 && pthread_mutex_destroy(mutex) == 0);
}

static struct deadline until;

static void *syscalls_thread(void *index)
{
	static void (*const groups[])(struct area *) = {
		file_calls, direct_calls, socket_calls, address_calls,
		pipe_calls, small_calls,  futex_calls,	child_calls,
	};
	struct area a = {managed(AREA_PAGES * PAGE), rng_new(600 + (intptr_t)index),
			 (int)(intptr_t)index};
	memset(a.at, 1, AREA_PAGES * PAGE);
	size_t turn = (intptr_t)index;
	size_t least = sizeof groups / sizeof groups[0];
	while (least > 0 || !deadline_passed(&until)) {
		groups[turn++ % (sizeof groups / sizeof groups[0])](&a);
		least -= least > 0;
	}
	munmap(a.at, AREA_PAGES * PAGE);
	return NULL;
}

void part_syscalls(void)
{
	until = deadline_new();
	signal(SIGPIPE, SIG_IGN);
	run_threads(PART, opt.threads, syscalls_thread);
}
