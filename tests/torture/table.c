/* table: every row of the table of system calls (crates/flashvm-live/src/guard/table.rs), called with
 * each of its objects in turn absent, clean, and across a page border; see table_ways.c.
 *
 * A row that needs privilege or a feature that the kernel lacks may fail, in the same way for every
 * placement. Rows that would change the machine are called with arguments that fail.
 */
#include "table.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/perf_event.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>

/* Calls newer than the C library's list; their numbers are the same on all architectures. */
enum {
	NEW_fchmodat2 = 452, NEW_cachestat = 451, NEW_futex_wake = 454, NEW_futex_wait = 455,
	NEW_futex_requeue = 456, NEW_statmount = 457, NEW_listmount = 458,
	NEW_lsm_get_self_attr = 459, NEW_lsm_set_self_attr = 460, NEW_lsm_list_modules = 461,
	NEW_setxattrat = 463, NEW_getxattrat = 464, NEW_listxattrat = 465, NEW_removexattrat = 466,
	NEW_open_tree_attr = 467, NEW_file_getattr = 468, NEW_file_setattr = 469,
};
#undef SYS_fchmodat2
#undef SYS_cachestat
#undef SYS_futex_wake
#undef SYS_futex_wait
#undef SYS_futex_requeue
#undef SYS_statmount
#undef SYS_listmount
#undef SYS_lsm_get_self_attr
#undef SYS_lsm_set_self_attr
#undef SYS_lsm_list_modules
#undef SYS_setxattrat
#undef SYS_getxattrat
#undef SYS_listxattrat
#undef SYS_removexattrat
#undef SYS_open_tree_attr
#undef SYS_file_getattr
#undef SYS_file_setattr
#define SYS_fchmodat2 NEW_fchmodat2
#define SYS_cachestat NEW_cachestat
#define SYS_futex_wake NEW_futex_wake
#define SYS_futex_wait NEW_futex_wait
#define SYS_futex_requeue NEW_futex_requeue
#define SYS_statmount NEW_statmount
#define SYS_listmount NEW_listmount
#define SYS_lsm_get_self_attr NEW_lsm_get_self_attr
#define SYS_lsm_set_self_attr NEW_lsm_set_self_attr
#define SYS_lsm_list_modules NEW_lsm_list_modules
#define SYS_setxattrat NEW_setxattrat
#define SYS_getxattrat NEW_getxattrat
#define SYS_listxattrat NEW_listxattrat
#define SYS_removexattrat NEW_removexattrat
#define SYS_open_tree_attr NEW_open_tree_attr
#define SYS_file_getattr NEW_file_getattr
#define SYS_file_setattr NEW_file_setattr

static char folder[] = "/var/tmp/torture-table-XXXXXX";
static uint8_t content[4 * PAGE]; /* of files and messages */
enum { LONG = 5000 };		  /* bytes of `content`: more than a page */

/* ---- preconditions of calls ---- */
static const char *path(const char *name)
{
	static char paths[8][64];
	static int turn;
	char *p = paths[turn++ % 8];
	snprintf(p, sizeof paths[0], "%s/%s", folder, name);
	return p;
}

static void forget(long name)
{
	const char *p = path((const char *)name);
	if (unlink(p) && errno == EISDIR)
		rmdir(p);
	rmdir(p);
}

/* A path that does not exist; removed after the call. */
static const char *fresh(struct call *c, const char *name)
{
	forget((long)name);
	call_undo(c, forget, (long)name);
	return path(name);
}

/* An empty file for this call. */
static const char *file(struct call *c, const char *name)
{
	const char *p = fresh(c, name);
	int fd = open(p, O_CREAT | O_RDWR, 0600);
	MUST(TABLE, fd >= 0 && close(fd) == 0);
	return p;
}

static int opened(struct call *c, const char *name, int flags)
{
	return call_fd(c, open(path(name), flags | O_CLOEXEC));
}

static const char *attributed(struct call *c, const char *name)
{
	const char *p = file(c, name);
	setxattr(p, "user.torture", "a value of an attribute", 23, 0);
	return p;
}

struct ends {
	int from, to;
};

static struct ends new_pipe(struct call *c)
{
	int fds[2];
	MUST(TABLE, pipe(fds) == 0);
	return (struct ends){call_fd(c, fds[0]), call_fd(c, fds[1])};
}

static struct ends full_pipe(struct call *c)
{
	struct ends e = new_pipe(c);
	MUST(TABLE, write(e.to, content, LONG) == LONG);
	return e;
}

/* An address without a file. */
static socklen_t name_address(struct sockaddr_un *a, const char *name)
{
	memset(a, 0, sizeof *a);
	a->sun_family = AF_UNIX;
	int n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "torture-%d-%s", (int)getpid(), name);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

static int bound(struct call *c, int type, const char *name)
{
	struct sockaddr_un a;
	int s = call_fd(c, socket(AF_UNIX, type, 0));
	socklen_t length = name_address(&a, name);
	MUST(TABLE, bind(s, (void *)&a, length) == 0);
	return s;
}

static int connected(struct call *c, int s, const char *name)
{
	struct sockaddr_un a;
	socklen_t length = name_address(&a, name);
	MUST(TABLE, connect(s, (void *)&a, length) == 0);
	(void)c;
	return s;
}

static int listener(struct call *c)
{
	int s = bound(c, SOCK_STREAM, "listener");
	MUST(TABLE, listen(s, 5) == 0);
	return s;
}

/* Two named datagram sockets: `from` receives what is sent to `to`. */
static struct ends datagrams(struct call *c)
{
	struct ends e;
	e.from = bound(c, SOCK_DGRAM, "receiver");
	e.to = connected(c, bound(c, SOCK_DGRAM, "sender"), "receiver");
	return e;
}

static void reap(long child)
{
	while (waitpid((pid_t)child, NULL, 0) < 0 && errno == EINTR)
		;
}

/* A child that ends with status 7. */
static long ended_child(struct call *c)
{
	pid_t child = fork();
	MUST(TABLE, child >= 0);
	if (child == 0)
		_exit(7);
	call_undo(c, reap, child);
	return child;
}

static sigset_t one_signal(int number)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, number);
	return set;
}

static void take_signals(long number)
{
	sigset_t set = one_signal((int)number);
	struct timespec none = {0, 0};
	while (sigtimedwait(&set, NULL, &none) > 0)
		;
}

/* A blocked, pending signal. */
static void pending(struct call *c, int number)
{
	call_undo(c, take_signals, number);
	MUST(TABLE, kill(getpid(), number) == 0);
}

static void stop_ticks(long unused)
{
	(void)unused;
	setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
}

/* Interrupts a waiting call soon. */
static void ticks(struct call *c)
{
	call_undo(c, stop_ticks, 0);
	setitimer(ITIMER_REAL, &(struct itimerval){{0, 4000}, {0, 4000}}, NULL);
}

static void on_signal(int number)
{
	(void)number;
}

static const struct timespec ONE_SECOND = {1, 0}, LONG_TIME = {20, 0}, LONG_AGO = {0, 1},
			     NEVER = {0, 2000000000}, NOW = {0, 0}, SOON = {0, 1000000};

/* ---- files by path ---- */
ROW(openat) { ARGS(AT_FDCWD, TEXT(path("still")), O_RDONLY); c->gives_fd = true; }
ROW(openat2)
{
	uint64_t how[3] = {O_RDONLY, 0, 0};
	ARGS(AT_FDCWD, TEXT(path("still")), IN(how, sizeof how), sizeof how);
	c->gives_fd = true;
}
struct handle {
	unsigned bytes;
	int type;
	uint8_t handle[128];
};
ROW(name_to_handle_at)
{
	struct handle h = {.bytes = 128};
	ARGS(AT_FDCWD, TEXT(path("still")), IN(&h, sizeof h), OUT(8), 0);
}
ROW(open_by_handle_at)
{
	struct handle h = {.bytes = 128};
	int mount;
	syscall(SYS_name_to_handle_at, AT_FDCWD, path("still"), &h, &mount, 0);
	ARGS(opened(c, ".", O_RDONLY), IN(&h, 8 + h.bytes), O_RDONLY);
	c->gives_fd = true;
}
ROW(memfd_create) { ARGS(TEXT("a name"), MFD_CLOEXEC); c->gives_fd = true; }
ROW(newfstatat) { ARGS(AT_FDCWD, TEXT(path("still")), OUT(sizeof(struct stat)), 0); }
ROW(fstat) { ARGS(opened(c, "still", O_RDONLY), OUT(sizeof(struct stat))); }
ROW(statx) { ARGS(AT_FDCWD, TEXT(path("still")), 0, STATX_BASIC_STATS, OUT(256)); }
ROW(statfs) { ARGS(TEXT(folder), OUT_VARIES(120)); }
ROW(fstatfs) { ARGS(opened(c, ".", O_RDONLY), OUT_VARIES(120)); }
ROW(cachestat)
{
	uint64_t range[2] = {0, LONG};
	ARGS(opened(c, "still", O_RDONLY), IN(range, sizeof range), OUT_VARIES(40), 0);
}
ROW(faccessat) { ARGS(AT_FDCWD, TEXT(path("still")), R_OK); }
ROW(faccessat2) { ARGS(AT_FDCWD, TEXT(path("still")), R_OK, 0); }
ROW(readlinkat) { ARGS(AT_FDCWD, TEXT(path("link")), OUT(18), 18); }
ROW(renameat)
{
	ARGS(AT_FDCWD, TEXT(file(c, "one")), AT_FDCWD, TEXT(fresh(c, "two")));
}
ROW(renameat2)
{
	ARGS(AT_FDCWD, TEXT(file(c, "one")), AT_FDCWD, TEXT(fresh(c, "two")), 0);
}
ROW(linkat)
{
	ARGS(AT_FDCWD, TEXT(file(c, "one")), AT_FDCWD, TEXT(fresh(c, "two")), 0);
}
ROW(symlinkat) { ARGS(TEXT("somewhere/else"), AT_FDCWD, TEXT(fresh(c, "two"))); }
ROW(unlinkat) { ARGS(AT_FDCWD, TEXT(file(c, "one")), 0); }
ROW(mkdirat) { ARGS(AT_FDCWD, TEXT(fresh(c, "one")), 0700); }
ROW(mknodat) { ARGS(AT_FDCWD, TEXT(fresh(c, "one")), S_IFREG | 0600, 0); }
ROW(fchmodat) { ARGS(AT_FDCWD, TEXT(file(c, "one")), 0600); }
ROW(fchmodat2) { ARGS(AT_FDCWD, TEXT(file(c, "one")), 0600, 0); }
ROW(fchownat) { ARGS(AT_FDCWD, TEXT(file(c, "one")), -1, -1, 0); }
ROW(utimensat)
{
	struct timespec times[2] = {{1000, 5}, {2000, 7}};
	ARGS(AT_FDCWD, TEXT(file(c, "one")), IN(times, sizeof times), 0);
}
ROW(truncate) { ARGS(TEXT(file(c, "one")), 100); }
ROW(chdir) { ARGS(TEXT(folder)); }
ROW(chroot) { ARGS(TEXT("/")); c->in_child = true; }
ROW(getcwd) { ARGS(OUT(sizeof folder), sizeof folder); }
ROW(getdents64) { ARGS(opened(c, "many", O_RDONLY | O_DIRECTORY), OUT(LONG), LONG); }
ROW(inotify_add_watch)
{
	ARGS(call_fd(c, inotify_init1(IN_CLOEXEC)), TEXT(path("still")), IN_MODIFY);
}
ROW(fanotify_mark)
{
	int fd = fanotify_init(FAN_CLASS_NOTIF | FAN_CLOEXEC | FAN_REPORT_FID, O_RDONLY);
	if (fd >= 0)
		call_fd(c, fd);
	ARGS(fd, FAN_MARK_ADD, FAN_MODIFY, AT_FDCWD, TEXT(path("still")));
}
ROW(file_getattr) { ARGS(AT_FDCWD, TEXT(path("still")), OUT(24), 24, 0); }
ROW(file_setattr)
{
	uint64_t attributes[3] = {0};
	const char *p = file(c, "one");
	syscall(SYS_file_getattr, AT_FDCWD, p, attributes, sizeof attributes, 0);
	ARGS(AT_FDCWD, TEXT(p), IN(attributes, sizeof attributes), sizeof attributes, 0);
}

/* ---- attributes ---- */
#define NAME TEXT("user.torture")
#define VALUE IN("another value", 13), 13
ROW(setxattr) { ARGS(TEXT(file(c, "one")), NAME, VALUE, 0); }
ROW(lsetxattr) { ARGS(TEXT(file(c, "one")), NAME, VALUE, 0); }
ROW(fsetxattr) { file(c, "one"); ARGS(opened(c, "one", O_RDWR), NAME, VALUE, 0); }
ROW(getxattr) { ARGS(TEXT(attributed(c, "one")), NAME, OUT(23), 23); }
ROW(lgetxattr) { ARGS(TEXT(attributed(c, "one")), NAME, OUT(23), 23); }
ROW(fgetxattr) { attributed(c, "one"); ARGS(opened(c, "one", O_RDONLY), NAME, OUT(23), 23); }
ROW(listxattr) { ARGS(TEXT(attributed(c, "one")), OUT(100), 100); }
ROW(llistxattr) { ARGS(TEXT(attributed(c, "one")), OUT(100), 100); }
ROW(flistxattr) { attributed(c, "one"); ARGS(opened(c, "one", O_RDONLY), OUT(100), 100); }
ROW(removexattr) { ARGS(TEXT(attributed(c, "one")), NAME); }
ROW(lremovexattr) { ARGS(TEXT(attributed(c, "one")), NAME); }
ROW(fremovexattr) { attributed(c, "one"); ARGS(opened(c, "one", O_RDWR), NAME); }
struct attribute {
	uint64_t value;
	uint32_t size, flags;
};
ROW(setxattrat)
{
	struct attribute a = {(uint64_t)IN("another value", 13), 13, 0};
	ARGS(AT_FDCWD, TEXT(file(c, "one")), 0, NAME, IN(&a, sizeof a), sizeof a);
}
ROW(getxattrat)
{
	struct attribute a = {(uint64_t)OUT(23), 23, 0};
	ARGS(AT_FDCWD, TEXT(attributed(c, "one")), 0, NAME, IN(&a, sizeof a), sizeof a);
}
ROW(listxattrat) { ARGS(AT_FDCWD, TEXT(attributed(c, "one")), 0, OUT(100), 100); }
ROW(removexattrat) { ARGS(AT_FDCWD, TEXT(attributed(c, "one")), 0, NAME); }

/* ---- data ---- */
/* A vector of two pieces, the second of more than a page. */
static long vector(struct call *c, const uint8_t *bytes, unsigned flags)
{
	struct iovec v[2];
	v[0].iov_base = (void *)object_new(c, bytes, 1000, flags);
	v[0].iov_len = 1000;
	v[1].iov_base = (void *)object_new(c, bytes ? bytes + 1000 : NULL, LONG - 1000, flags);
	v[1].iov_len = LONG - 1000;
	return IN(v, sizeof v);
}
static long scratch(struct call *c)
{
	file(c, "one");
	return c->drained = opened(c, "one", O_RDWR);
}

ROW(read) { ARGS(opened(c, "read", O_RDONLY), OUT(LONG), LONG); }
MORE(read, pipe) { struct ends e = full_pipe(c); ARGS(e.from, OUT(LONG), LONG); c->drained = e.from; }
MORE(read, stream)
{
	int s[2];
	MUST(TABLE, socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
	call_fd(c, s[0]), call_fd(c, s[1]);
	MUST(TABLE, write(s[1], content, LONG) == LONG);
	ARGS(s[0], OUT(LONG), LONG);
	c->drained = s[0];
}
MORE(read, datagram)
{
	struct ends e = datagrams(c);
	MUST(TABLE, write(e.to, content, LONG) == LONG && write(e.to, content, 10) == 10);
	ARGS(e.from, OUT(LONG), LONG);
	c->drained = e.from;
}
MORE(read, eventfd)
{
	int fd = call_fd(c, (int)syscall(SYS_eventfd2, 77, O_NONBLOCK));
	ARGS(fd, OUT(8), 8);
	c->drained = fd;
}
MORE(read, timerfd)
{
	struct itimerspec t = {{0, 0}, {0, 1}};
	int fd = call_fd(c, timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK));
	MUST(TABLE, timerfd_settime(fd, 0, &t, NULL) == 0);
	struct pollfd expired = {.fd = fd, .events = POLLIN};
	MUST(TABLE, poll(&expired, 1, 10000) == 1);
	ARGS(fd, OUT(8), 8);
	c->drained = fd;
}
MORE(read, inotify)
{
	file(c, "one");
	int fd = call_fd(c, inotify_init1(IN_NONBLOCK));
	MUST(TABLE, inotify_add_watch(fd, path("one"), IN_OPEN) > 0);
	opened(c, "one", O_RDONLY);
	ARGS(fd, OUT(64), 64);
	c->drained = fd;
}
MORE(read, signalfd)
{
	sigset_t set = one_signal(SIGUSR2);
	int fd = call_fd(c, (int)syscall(SYS_signalfd4, -1, &set, 8, O_NONBLOCK));
	pending(c, SIGUSR2);
	ARGS(fd, OUT(128), 128);
	c->drained = fd;
}
MORE(read, terminal)
{
	int master = posix_openpt(O_RDWR | O_NOCTTY), slave = -1;
	if (master >= 0) {
		call_fd(c, master);
		grantpt(master), unlockpt(master);
		slave = open(ptsname(master), O_RDWR | O_NOCTTY | O_NONBLOCK);
	}
	if (slave >= 0) {
		call_fd(c, slave);
		MUST(TABLE, write(master, "a line of text\n", 15) == 15);
	}
	ARGS(slave, OUT(15), 15);
}
ROW(pread64) { ARGS(opened(c, "read", O_RDONLY), OUT(LONG), LONG, 3); }
ROW(readv) { ARGS(opened(c, "read", O_RDONLY), vector(c, NULL, 0), 2); }
MORE(readv, datagram)
{
	struct ends e = datagrams(c);
	MUST(TABLE, write(e.to, content, LONG) == LONG);
	ARGS(e.from, vector(c, NULL, 0), 2);
}
ROW(preadv) { ARGS(opened(c, "read", O_RDONLY), vector(c, NULL, 0), 2, 3, 0); }
ROW(preadv2) { ARGS(opened(c, "read", O_RDONLY), vector(c, NULL, 0), 2, 3, 0, 0); }
ROW(write) { ARGS(scratch(c), IN(content, LONG), LONG); }
MORE(write, pipe) { struct ends e = new_pipe(c); ARGS(e.to, IN(content, LONG), LONG); c->drained = e.from; }
MORE(write, datagram)
{
	struct ends e = datagrams(c);
	ARGS(e.to, IN(content, LONG), LONG);
	c->drained = e.from;
}
ROW(pwrite64) { ARGS(scratch(c), IN(content, LONG), LONG, 3); }
ROW(writev) { ARGS(scratch(c), vector(c, content, 0), 2); }
MORE(writev, datagram)
{
	struct ends e = datagrams(c);
	ARGS(e.to, vector(c, content, 0), 2);
	c->drained = e.from;
}
ROW(pwritev) { ARGS(scratch(c), vector(c, content, 0), 2, 3, 0); }
ROW(pwritev2) { ARGS(scratch(c), vector(c, content, 0), 2, 3, 0, 0); }
ROW(vmsplice)
{
	struct ends e = new_pipe(c);
	ARGS(e.to, vector(c, content, 0), 2, 0);
	c->drained = e.from;
}
MORE(vmsplice, out) { ARGS(full_pipe(c).from, vector(c, NULL, 0), 2, 0); }
ROW(sendfile)
{
	off_t at = 3;
	ARGS(scratch(c), opened(c, "read", O_RDONLY), IN(&at, sizeof at), LONG);
}
ROW(splice)
{
	off_t at = 3;
	struct ends e = new_pipe(c);
	ARGS(opened(c, "read", O_RDONLY), IN(&at, sizeof at), e.to, 0, LONG, 0);
	c->drained = e.from;
}
MORE(splice, out)
{
	off_t at = 3;
	struct ends e = full_pipe(c);
	ARGS(e.from, 0, scratch(c), IN(&at, sizeof at), LONG, 0);
}
ROW(copy_file_range)
{
	off_t from = 3, to = 0;
	ARGS(opened(c, "read", O_RDONLY), IN(&from, sizeof from), scratch(c), IN(&to, sizeof to),
	     LONG, 0);
}
/* Closes descriptors that a call put into its last object; whether they were open. */
static long close_both(struct call *c)
{
	int fds[2];
	if (c->result < 0)
		return 0;
	memcpy(fds, c->objects[c->object_count - 1].at, sizeof fds);
	return close(fds[0]) == 0 && close(fds[1]) == 0;
}
ROW(pipe2) { ARGS(OUT_VARIES(8), O_CLOEXEC); c->extra = close_both; }
ROW(fcntl)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};
	ARGS(scratch(c), F_SETLK, IN(&lock, sizeof lock));
}
MORE(fcntl, getlk)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};
	ARGS(scratch(c), F_GETLK, IN(&lock, sizeof lock));
}
MORE(fcntl, ofd)
{
	struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_len = 10};
	ARGS(scratch(c), F_OFD_SETLK, IN(&lock, sizeof lock));
}
MORE(fcntl, owner) { ARGS(full_pipe(c).from, F_GETOWN_EX, OUT(8)); }
ROW(ioctl) { ARGS(full_pipe(c).from, FIONREAD, OUT(4)); }
MORE(ioctl, terminal)
{
	int master = posix_openpt(O_RDWR | O_NOCTTY);
	if (master >= 0)
		call_fd(c, master);
	ARGS(master, TCGETS, OUT(36));
}
MORE(ioctl, size)
{
	/* _IOR of an int: the number of a terminal. */
	int master = posix_openpt(O_RDWR | O_NOCTTY);
	if (master >= 0)
		call_fd(c, master);
	ARGS(master, TIOCGPTN, OUT_VARIES(4));
}

/* ---- waiting for descriptors ---- */
struct sets {
	unsigned long read[2], write[2], except[2];
};
static struct sets sets_of(int from, int to)
{
	struct sets s = {{0}, {0}, {0}};
	s.read[from / 64] |= 1ul << from % 64;
	s.write[to / 64] |= 1ul << to % 64;
	s.except[from / 64] |= 1ul << from % 64;
	return s;
}
/* This program's descriptors are below 128. */
ROW(pselect6)
{
	struct ends e = full_pipe(c);
	struct sets s = sets_of(e.from, e.to);
	sigset_t set = one_signal(SIGUSR2);
	uint64_t mask[2] = {(uint64_t)IN(&set, 8), 8};
	ARGS(128, IN(s.read, 16), IN(s.write, 16), IN(s.except, 16),
	     INOUT_VARIES(&ONE_SECOND, sizeof ONE_SECOND), IN(mask, sizeof mask));
}
ROW(ppoll)
{
	struct ends e = full_pipe(c);
	struct pollfd p[3] = {{e.from, POLLIN, 0}, {e.to, POLLOUT, 0}, {-1, POLLIN, 0}};
	sigset_t set = one_signal(SIGUSR2);
	ARGS(IN(p, sizeof p), 3, INOUT_VARIES(&ONE_SECOND, sizeof ONE_SECOND), IN(&set, 8), 8);
}
static int poller(struct call *c)
{
	struct ends e = full_pipe(c);
	int fd = call_fd(c, epoll_create1(EPOLL_CLOEXEC));
	struct epoll_event in = {EPOLLIN | EPOLLET, {.u64 = 0x1122334455667788}};
	struct epoll_event out = {EPOLLOUT | EPOLLONESHOT, {.u64 = 0x99aabbccddeeff00}};
	MUST(TABLE, epoll_ctl(fd, EPOLL_CTL_ADD, e.from, &in) == 0);
	MUST(TABLE, epoll_ctl(fd, EPOLL_CTL_ADD, e.to, &out) == 0);
	return fd;
}
enum { EVENT = sizeof(struct epoll_event) };
ROW(epoll_ctl)
{
	struct epoll_event in = {EPOLLIN, {.u64 = 5}};
	int fd = call_fd(c, epoll_create1(EPOLL_CLOEXEC));
	ARGS(fd, EPOLL_CTL_ADD, full_pipe(c).from, IN(&in, sizeof in));
}
/* One of two events at a time, so that their order does not matter. */
ROW(epoll_pwait)
{
	sigset_t set = one_signal(SIGUSR2);
	ARGS(poller(c), OUT(2 * EVENT), 2, 1000, IN(&set, 8), 8);
}
ROW(epoll_pwait2)
{
	sigset_t set = one_signal(SIGUSR2);
	ARGS(poller(c), OUT(2 * EVENT), 2, IN(&ONE_SECOND, sizeof ONE_SECOND), IN(&set, 8), 8);
}
ROW(signalfd4)
{
	sigset_t set = one_signal(SIGUSR2);
	ARGS(-1, IN(&set, 8), 8, 0);
	c->gives_fd = true;
}

/* ---- sockets ---- */
#define ADDRESS(variable, name)      \
	struct sockaddr_un variable; \
	socklen_t variable##_length = name_address(&variable, name)
#define LENGTH(value) IN(&(socklen_t){value}, sizeof(socklen_t))
#define OUT_ADDRESS OUT(sizeof(struct sockaddr_un)), LENGTH(sizeof(struct sockaddr_un))
ROW(bind)
{
	ADDRESS(a, "bound");
	ARGS(call_fd(c, socket(AF_UNIX, SOCK_STREAM, 0)), IN(&a, a_length), a_length);
}
ROW(connect)
{
	ADDRESS(a, "listener");
	listener(c);
	ARGS(call_fd(c, socket(AF_UNIX, SOCK_STREAM, 0)), IN(&a, a_length), a_length);
}
static int called(struct call *c)
{
	int s = listener(c);
	connected(c, bound(c, SOCK_STREAM, "caller"), "listener");
	fcntl(s, F_SETFL, O_NONBLOCK);
	c->gives_fd = true;
	return s;
}
ROW(accept) { ARGS(called(c), OUT_ADDRESS); }
ROW(accept4) { ARGS(called(c), OUT_ADDRESS, SOCK_CLOEXEC); }
ROW(getsockname) { ARGS(bound(c, SOCK_STREAM, "bound"), OUT_ADDRESS); }
ROW(getpeername) { ARGS(datagrams(c).to, OUT_ADDRESS); }
ROW(socketpair) { ARGS(AF_UNIX, SOCK_STREAM, 0, OUT_VARIES(8)); c->extra = close_both; }
ROW(getsockopt)
{
	/* A pending error, reported once: of a datagram to a closed port. */
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof a;
	int gone = socket(AF_INET, SOCK_DGRAM, 0), s = call_fd(c, socket(AF_INET, SOCK_DGRAM, 0));
	MUST(TABLE, gone >= 0 && bind(gone, (void *)&a, length) == 0 &&
			    getsockname(gone, (void *)&a, &length) == 0 && close(gone) == 0 &&
			    connect(s, (void *)&a, length) == 0 && write(s, "x", 1) == 1);
	ARGS(s, SOL_SOCKET, SO_ERROR, OUT(4), LENGTH(4));
}
ROW(setsockopt)
{
	struct timeval t = {3, 0};
	ARGS(datagrams(c).from, SOL_SOCKET, SO_RCVTIMEO, IN(&t, sizeof t), sizeof t);
}
static long filter(struct call *c)
{
	struct sock_filter all[2] = {{BPF_LD | BPF_W | BPF_ABS, 0, 0, 0},
				     {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
	struct sock_fprog program;
	memset(&program, 0, sizeof program); /* padding is compared too */
	program.len = 2;
	program.filter = (void *)IN(all, sizeof all);
	return IN(&program, sizeof program);
}
MORE(setsockopt, filter)
{
	ARGS(datagrams(c).from, SOL_SOCKET, SO_ATTACH_FILTER, filter(c), sizeof(struct sock_fprog));
}
ROW(sendto)
{
	ADDRESS(a, "receiver");
	c->drained = bound(c, SOCK_DGRAM, "receiver");
	ARGS(call_fd(c, socket(AF_UNIX, SOCK_DGRAM, 0)), IN(content, LONG), LONG, 0,
	     IN(&a, a_length), a_length);
}
/* A complete message, to send or to receive. */
static struct msghdr message(struct call *c, bool send)
{
	struct msghdr m;
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(struct ucred))];
	} control;
	memset(&m, 0, sizeof m);
	memset(&control, 0, sizeof control);
	control.head.cmsg_len = CMSG_LEN(sizeof(struct ucred));
	control.head.cmsg_level = SOL_SOCKET;
	control.head.cmsg_type = SCM_CREDENTIALS;
	struct ucred credentials = {getpid(), getuid(), getgid()};
	memcpy(CMSG_DATA(&control.head), &credentials, sizeof credentials);
	ADDRESS(a, "receiver");
	m.msg_name = (void *)(send ? IN(&a, a_length) : OUT(sizeof a));
	m.msg_namelen = send ? a_length : sizeof a;
	m.msg_control = (void *)(send ? IN(&control, sizeof control) : OUT(sizeof control));
	m.msg_controllen = sizeof control;
	m.msg_iov = (void *)vector(c, send ? content : NULL, 0);
	m.msg_iovlen = 2;
	return m;
}
/* A socket with `count` waiting datagrams of LONG bytes. */
static int receiving(struct call *c, int count)
{
	struct ends e = datagrams(c);
	int on = 1;
	MUST(TABLE, setsockopt(e.from, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0);
	for (int i = 0; i < count; i++)
		MUST(TABLE, write(e.to, content + i, LONG) == LONG);
	MUST(TABLE, fcntl(e.from, F_SETFL, O_NONBLOCK) == 0);
	return e.from;
}
ROW(sendmsg)
{
	c->drained = bound(c, SOCK_DGRAM, "receiver");
	struct msghdr m = message(c, true);
	ARGS(call_fd(c, socket(AF_UNIX, SOCK_DGRAM, 0)), IN(&m, sizeof m), 0);
}
ROW(sendmmsg)
{
	c->drained = bound(c, SOCK_DGRAM, "receiver");
	/* Only the header of the second message is an object. */
	static struct sockaddr_un a;
	static struct iovec v = {content, 20};
	struct mmsghdr m[2];
	memset(m, 0, sizeof m);
	m[0].msg_hdr = message(c, true);
	m[1].msg_hdr.msg_name = &a, m[1].msg_hdr.msg_namelen = name_address(&a, "receiver");
	m[1].msg_hdr.msg_iov = &v, m[1].msg_hdr.msg_iovlen = 1;
	ARGS(call_fd(c, socket(AF_UNIX, SOCK_DGRAM, 0)), IN(m, sizeof m), 2, 0);
}
ROW(recvfrom)
{
	int s = receiving(c, 2);
	ARGS(s, OUT(LONG), LONG, 0, OUT_ADDRESS);
	c->drained = s;
}
ROW(recvmsg)
{
	int s = receiving(c, 2);
	struct msghdr m = message(c, false);
	ARGS(s, IN(&m, sizeof m), 0);
	c->drained = s;
}
ROW(recvmmsg)
{
	static uint8_t bytes[LONG];
	static struct iovec v = {bytes, LONG};
	int s = receiving(c, 3);
	struct mmsghdr m[2];
	memset(m, 0, sizeof m);
	m[0].msg_hdr = message(c, false);
	m[1].msg_hdr.msg_iov = &v, m[1].msg_hdr.msg_iovlen = 1;
	ARGS(s, IN(m, sizeof m), 2, 0, INOUT_VARIES(&ONE_SECOND, sizeof ONE_SECOND));
	c->drained = s;
}

/* ---- asynchronous I/O ---- */
static void destroy_aio(long context)
{
	syscall(SYS_io_destroy, context);
}
static long aio(struct call *c)
{
	unsigned long context = 0;
	if (syscall(SYS_io_setup, 8, &context) == 0)
		call_undo(c, destroy_aio, (long)context);
	return (long)context;
}
static long destroy_new_aio(struct call *c)
{
	long context;
	if (c->result < 0)
		return 0;
	memcpy(&context, c->objects[0].at, sizeof context);
	return syscall(SYS_io_destroy, context);
}
ROW(io_setup)
{
	ARGS(8, INOUT_VARIES(&(long){0}, sizeof(long)));
	c->extra = destroy_new_aio;
}
/* The results in the events of two operations. */
static long aio_results(struct call *c)
{
	struct io_event events[2] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
	struct timespec t = ONE_SECOND;
	if (c->result > 0)
		syscall(SYS_io_getevents, c->args[0], c->result, 2, events, &t);
	return events[0].res * 31 + events[1].res;
}
ROW(io_submit)
{
	struct iocb one = {.aio_lio_opcode = IOCB_CMD_PREAD, .aio_nbytes = LONG}, two;
	one.aio_fildes = opened(c, "read", O_RDONLY);
	one.aio_buf = OUT(LONG);
	two = one;
	two.aio_lio_opcode = IOCB_CMD_PREADV;
	two.aio_nbytes = 2;
	two.aio_buf = vector(c, NULL, 0);
	uint64_t list[2] = {IN(&one, sizeof one), IN(&two, sizeof two)};
	ARGS(aio(c), 2, IN(list, sizeof list));
	c->extra = aio_results;
}
MORE(io_submit, write)
{
	struct iocb one = {.aio_lio_opcode = IOCB_CMD_PWRITE, .aio_nbytes = LONG};
	one.aio_fildes = scratch(c);
	one.aio_buf = IN(content, LONG);
	uint64_t list[1] = {IN(&one, sizeof one)};
	ARGS(aio(c), 1, IN(list, sizeof list));
}
/* Two ended operations. */
static long ended_aio(struct call *c)
{
	static uint8_t bytes[PAGE];
	static struct iocb one, two;
	struct iocb *list[2] = {&one, &two};
	long context = aio(c);
	one = (struct iocb){.aio_lio_opcode = IOCB_CMD_PREAD, .aio_nbytes = 100, .aio_data = 1};
	one.aio_buf = (uint64_t)bytes;
	one.aio_fildes = opened(c, "read", O_RDONLY);
	two = one;
	two.aio_nbytes = 200;
	syscall(SYS_io_submit, context, 2, list);
	return context;
}
ROW(io_getevents)
{
	ARGS(ended_aio(c), 2, 2, OUT(64), IN(&ONE_SECOND, sizeof ONE_SECOND));
}
ROW(io_pgetevents)
{
	sigset_t set = one_signal(SIGUSR2);
	uint64_t mask[2] = {(uint64_t)IN(&set, 8), 8};
	ARGS(ended_aio(c), 2, 2, OUT(64), IN(&ONE_SECOND, sizeof ONE_SECOND), IN(mask, sizeof mask));
}
ROW(io_cancel)
{
	struct iocb none = {.aio_lio_opcode = IOCB_CMD_PREAD};
	ARGS(aio(c), IN(&none, sizeof none), OUT(32));
}

/* ---- time ---- */
#define TIME_IN(value) IN(&(value), sizeof(struct timespec))
#define TIME_OUT OUT_VARIES(sizeof(struct timespec))
static const struct itimerspec FAR = {{0, 0}, {1000, 0}};
ROW(clock_gettime) { ARGS(CLOCK_MONOTONIC, TIME_OUT); }
ROW(clock_settime) { ARGS(CLOCK_REALTIME, TIME_IN(NEVER)); }
ROW(clock_getres) { ARGS(CLOCK_MONOTONIC, OUT(16)); }
ROW(clock_adjtime)
{
	struct timex t = {.modes = 0};
	ARGS(CLOCK_REALTIME, INOUT_VARIES(&t, sizeof t));
	c->result_varies = true;
}
ROW(adjtimex)
{
	struct timex t = {.modes = 0};
	ARGS(INOUT_VARIES(&t, sizeof t));
	c->result_varies = true;
}
ROW(nanosleep) { ARGS(TIME_IN(SOON), TIME_OUT); }
MORE(nanosleep, interrupted) { ticks(c); ARGS(TIME_IN(LONG_TIME), TIME_OUT); }
ROW(clock_nanosleep) { ARGS(CLOCK_MONOTONIC, 0, TIME_IN(SOON), TIME_OUT); }
MORE(clock_nanosleep, interrupted)
{
	ticks(c);
	ARGS(CLOCK_MONOTONIC, 0, TIME_IN(LONG_TIME), TIME_OUT);
}
ROW(gettimeofday) { ARGS(TIME_OUT, OUT(8)); }
ROW(settimeofday)
{
	struct timeval never = {0, 2000000};
	ARGS(IN(&never, sizeof never), 0);
}
ROW(getitimer) { ARGS(ITIMER_REAL, OUT(32)); }
ROW(setitimer)
{
	struct itimerval far = {{0, 0}, {1000, 0}};
	setitimer(ITIMER_REAL, &far, NULL);
	call_undo(c, stop_ticks, 0);
	ARGS(ITIMER_REAL, IN(&far, sizeof far), OUT_VARIES(32));
}
static void delete_timer(long timer)
{
	syscall(SYS_timer_delete, timer);
}
static long delete_new_timer(struct call *c)
{
	int timer;
	if (c->result < 0)
		return 0;
	memcpy(&timer, c->objects[1].at, sizeof timer);
	return syscall(SYS_timer_delete, timer);
}
static long new_timer(struct call *c)
{
	int timer = -1;
	struct sigevent none = {.sigev_notify = SIGEV_NONE};
	MUST(TABLE, syscall(SYS_timer_create, CLOCK_MONOTONIC, &none, &timer) == 0);
	call_undo(c, delete_timer, timer);
	MUST(TABLE, syscall(SYS_timer_settime, timer, 0, &FAR, NULL) == 0);
	return timer;
}
ROW(timer_create)
{
	struct sigevent none = {.sigev_notify = SIGEV_NONE};
	ARGS(CLOCK_MONOTONIC, IN(&none, sizeof none), OUT_VARIES(4));
	c->extra = delete_new_timer;
}
ROW(timer_settime) { ARGS(new_timer(c), 0, IN(&FAR, sizeof FAR), OUT_VARIES(32)); }
ROW(timer_gettime) { ARGS(new_timer(c), OUT_VARIES(32)); }
static int new_timerfd(struct call *c)
{
	int fd = call_fd(c, timerfd_create(CLOCK_MONOTONIC, 0));
	MUST(TABLE, timerfd_settime(fd, 0, &FAR, NULL) == 0);
	return fd;
}
ROW(timerfd_settime) { ARGS(new_timerfd(c), 0, IN(&FAR, sizeof FAR), OUT_VARIES(32)); }
ROW(timerfd_gettime) { ARGS(new_timerfd(c), OUT_VARIES(32)); }
ROW(times) { ARGS(OUT_VARIES(32)); c->result_varies = true; }

/* ---- processes ---- */
static long words(struct call *c, const char *a, const char *b, const char *d)
{
	uint64_t list[4] = {TEXT(a), TEXT(b), TEXT(d), 0};
	return IN(list, sizeof list);
}
static long environment(struct call *c)
{
	uint64_t list[2] = {TEXT("LD_PRELOAD="), 0};
	return IN(list, sizeof list);
}
ROW(execve)
{
	ARGS(TEXT("/bin/sh"), words(c, "sh", "-c", "exit 23"), environment(c));
	c->in_child = true;
}
ROW(execveat)
{
	ARGS(AT_FDCWD, TEXT("/bin/sh"), words(c, "sh", "-c", "exit 23"), environment(c), 0);
	c->in_child = true;
}
ROW(wait4)
{
	ARGS(ended_child(c), OUT(4), 0, OUT_VARIES(sizeof(struct rusage)));
	c->result_varies = true;
}
ROW(waitid)
{
	ARGS(P_PID, ended_child(c), OUT_VARIES(128), WEXITED, OUT_VARIES(sizeof(struct rusage)));
}
ROW(getrusage) { ARGS(RUSAGE_SELF, OUT_VARIES(sizeof(struct rusage))); }
ROW(prlimit64)
{
	struct rlimit limit;
	getrlimit(RLIMIT_CORE, &limit);
	ARGS(0, RLIMIT_CORE, IN(&limit, sizeof limit), OUT(sizeof limit));
}
ROW(sysinfo) { ARGS(OUT_VARIES(112)); }
ROW(uname) { ARGS(OUT(390)); }
ROW(getgroups)
{
	int n = getgroups(0, NULL);
	ARGS(n > 0 ? n : 1, OUT(n > 0 ? n * 4 : 4));
}
ROW(setgroups)
{
	gid_t groups[3] = {0, 1, 2};
	ARGS(3, IN(groups, sizeof groups));
	c->in_child = true;
}
ROW(getresuid) { ARGS(OUT(4), OUT(4), OUT(4)); }
ROW(getresgid) { ARGS(OUT(4), OUT(4), OUT(4)); }
ROW(capget)
{
	uint32_t head[2] = {_LINUX_CAPABILITY_VERSION_3, 0};
	ARGS(IN(head, sizeof head), OUT(24));
}
ROW(capset)
{
	uint32_t head[2] = {_LINUX_CAPABILITY_VERSION_3, 0}, data[6];
	MUST(TABLE, syscall(SYS_capget, head, data) == 0);
	ARGS(IN(head, sizeof head), IN(data, sizeof data));
}
ROW(prctl) { ARGS(PR_GET_NAME, OUT(16)); }
MORE(prctl, set) { ARGS(PR_SET_NAME, IN("torture\0\0\0\0\0\0\0\0", 16)); }
MORE(prctl, signal) { ARGS(PR_GET_PDEATHSIG, OUT(4)); }
MORE(prctl, filter)
{
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	ARGS(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filter(c));
	c->in_child = true;
}
ROW(getcpu) { ARGS(OUT_VARIES(4), OUT_VARIES(4)); }
ROW(getrandom) { ARGS(OUT_VARIES(200), 200, 0); }
ROW(sched_setparam) { ARGS(0, IN(&(int){0}, 4)); }
ROW(sched_getparam) { ARGS(0, OUT(4)); }
ROW(sched_setscheduler) { ARGS(0, SCHED_OTHER, IN(&(int){0}, 4)); }
ROW(sched_rr_get_interval) { ARGS(0, OUT_VARIES(16)); }
ROW(sched_setaffinity)
{
	unsigned long set[16] = {0};
	syscall(SYS_sched_getaffinity, 0, sizeof set, set);
	ARGS(0, sizeof set, IN(set, sizeof set));
}
ROW(sched_getaffinity) { ARGS(0, 128, OUT(128)); }
ROW(sched_setattr)
{
	uint32_t attributes[12] = {48};
	ARGS(0, IN(attributes, sizeof attributes), 0);
}
ROW(sched_getattr) { ARGS(0, OUT(56), 56, 0); }

/* ---- signals ---- */
static siginfo_t queued(int number)
{
	siginfo_t info;
	memset(&info, 0, sizeof info);
	info.si_signo = number;
	info.si_code = SI_QUEUE;
	info.si_value.sival_int = 99;
	return info;
}
/* The value of a signal that a call sent. */
static long sent_value(struct call *c)
{
	(void)c;
	sigset_t set = one_signal(SIGUSR2);
	siginfo_t info = {0};
	struct timespec none = {0, 0};
	return sigtimedwait(&set, &info, &none) * 1000l + info.si_value.sival_int;
}
ROW(rt_sigpending) { pending(c, SIGUSR2); ARGS(OUT(8), 8); }
ROW(rt_sigsuspend)
{
	sigset_t set = one_signal(SIGUSR1);
	sigdelset(&set, SIGUSR2);
	pending(c, SIGUSR2);
	ARGS(IN(&set, 8), 8);
}
ROW(rt_sigtimedwait)
{
	sigset_t set = one_signal(SIGUSR2);
	pending(c, SIGUSR2);
	ARGS(IN(&set, 8), OUT(128), TIME_IN(NOW), 8);
}
ROW(rt_sigqueueinfo)
{
	siginfo_t info = queued(SIGUSR2);
	ARGS(getpid(), SIGUSR2, IN(&info, sizeof info));
	c->extra = sent_value;
}
ROW(rt_tgsigqueueinfo)
{
	siginfo_t info = queued(SIGUSR2);
	ARGS(getpid(), (long)syscall(SYS_gettid), SIGUSR2, IN(&info, sizeof info));
	c->extra = sent_value;
}
ROW(pidfd_send_signal)
{
	siginfo_t info = queued(SIGUSR2);
	int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	if (fd >= 0)
		call_fd(c, fd);
	ARGS(fd, SIGUSR2, IN(&info, sizeof info), 0);
	c->extra = sent_value;
}

/* ---- futexes ---- */
#define WORD(value) object_new(c, &(uint32_t){value}, 4, ALIGNED)
ROW(futex) { ARGS(WORD(5), FUTEX_WAIT_PRIVATE, 5, TIME_IN(SOON)); }
MORE(futex, other_value) { ARGS(WORD(5), FUTEX_WAIT, 6, 0); }
MORE(futex, wake) { ARGS(WORD(5), FUTEX_WAKE, 1); }
MORE(futex, wake_op)
{
	ARGS(WORD(5), FUTEX_WAKE_OP_PRIVATE, 1, 1, WORD(7),
	     FUTEX_OP(FUTEX_OP_ADD, 3, FUTEX_OP_CMP_EQ, 0));
	c->may_fault = true;
}
MORE(futex, requeue) { ARGS(WORD(5), FUTEX_CMP_REQUEUE_PRIVATE, 1, 1, WORD(7), 5); }
MORE(futex, trylock) { ARGS(WORD(0), FUTEX_TRYLOCK_PI_PRIVATE); c->may_fault = true; }
MORE(futex, lock) { ARGS(WORD(0), FUTEX_LOCK_PI_PRIVATE, 0, 0); c->may_fault = true; }
struct waiter {
	uint64_t value, address;
	uint32_t flags, unused;
};
ROW(futex_waitv)
{
	struct waiter w[2] = {{5, (uint64_t)WORD(5), 2 | 128, 0}, {6, (uint64_t)WORD(6), 2 | 128, 0}};
	ARGS(IN(w, sizeof w), 2, 0, TIME_IN(LONG_AGO), CLOCK_MONOTONIC);
}
ROW(futex_wake) { ARGS(WORD(5), 0xffffffff, 1, 2); }
ROW(futex_wait) { ARGS(WORD(5), 5, 0xffffffff, 2 | 128, TIME_IN(LONG_AGO), CLOCK_MONOTONIC); }
ROW(futex_requeue)
{
	struct waiter w[2] = {{5, (uint64_t)WORD(5), 2 | 128, 0}, {0, (uint64_t)WORD(6), 2 | 128, 0}};
	ARGS(IN(w, sizeof w), 0, 1, 1);
}
ROW(get_robust_list) { ARGS(0, OUT(8), OUT(8)); }

/* ---- queues, semaphores, segments ---- */
static void remove_queue(long id)
{
	msgctl((int)id, IPC_RMID, NULL);
}
static void remove_semaphores(long id)
{
	semctl((int)id, 0, IPC_RMID);
}
static void remove_segment(long id)
{
	shmctl((int)id, IPC_RMID, NULL);
}
static long new_queue(struct call *c)
{
	int id = msgget(IPC_PRIVATE, 0600);
	if (id >= 0)
		call_undo(c, remove_queue, id);
	return id;
}
static long new_semaphores(struct call *c)
{
	int id = semget(IPC_PRIVATE, 5, 0600);
	if (id >= 0)
		call_undo(c, remove_semaphores, id);
	return id;
}
static long new_segment(struct call *c)
{
	int id = shmget(IPC_PRIVATE, 3 * PAGE, 0600);
	if (id >= 0)
		call_undo(c, remove_segment, id);
	return id;
}
static const struct sembuf operations[2] = {{1, 2, 0}, {1, -1, 0}};
ROW(semop) { ARGS(new_semaphores(c), IN(operations, sizeof operations), 2); }
ROW(semtimedop)
{
	ARGS(new_semaphores(c), IN(operations, sizeof operations), 2, TIME_IN(ONE_SECOND));
}
ROW(semctl) { ARGS(new_semaphores(c), 0, IPC_STAT, OUT_VARIES(sizeof(struct semid_ds))); }
MORE(semctl, get) { ARGS(new_semaphores(c), 0, GETALL, OUT(10)); }
MORE(semctl, set)
{
	uint16_t values[5] = {1, 2, 3, 4, 5};
	ARGS(new_semaphores(c), 0, SETALL, IN(values, sizeof values));
}
static long message_bytes(struct call *c)
{
	static struct {
		long type;
		uint8_t bytes[LONG];
	} m = {.type = 3};
	memcpy(m.bytes, content, LONG);
	return IN(&m, 8 + LONG);
}
ROW(msgsnd) { ARGS(new_queue(c), message_bytes(c), LONG, IPC_NOWAIT); }
ROW(msgrcv)
{
	struct {
		long type;
		char bytes[300];
	} m = {.type = 3};
	memcpy(m.bytes, content, sizeof m.bytes);
	long id = new_queue(c);
	msgsnd((int)id, &m, sizeof m.bytes, 0);
	ARGS(id, OUT(8 + 300), 300, 0, IPC_NOWAIT);
}
ROW(msgctl) { ARGS(new_queue(c), IPC_STAT, OUT_VARIES(sizeof(struct msqid_ds))); }
MORE(msgctl, set)
{
	struct msqid_ds d;
	long id = new_queue(c);
	MUST(TABLE, id < 0 || msgctl((int)id, IPC_STAT, &d) == 0);
	ARGS(id, IPC_SET, INOUT_VARIES(&d, sizeof d));
}
ROW(shmctl) { ARGS(new_segment(c), IPC_STAT, OUT_VARIES(sizeof(struct shmid_ds))); }
static const char *queue_name(void)
{
	static char name[40];
	snprintf(name, sizeof name, "torture-table-%d", (int)getpid());
	return name;
}
static void unlink_queue(long unused)
{
	(void)unused;
	syscall(SYS_mq_unlink, queue_name());
}
static const long QUEUE[8] = {0, 4, 512, 0};
static int named_queue(struct call *c)
{
	call_undo(c, unlink_queue, 0);
	int fd = (int)syscall(SYS_mq_open, queue_name(), O_CREAT | O_RDWR | O_NONBLOCK, 0600, QUEUE);
	if (fd >= 0)
		call_fd(c, fd);
	return fd;
}
ROW(mq_open)
{
	call_undo(c, unlink_queue, 0);
	ARGS(TEXT(queue_name()), O_CREAT | O_RDWR, 0600, IN(QUEUE, sizeof QUEUE));
	c->gives_fd = true;
}
ROW(mq_unlink) { named_queue(c); ARGS(TEXT(queue_name())); }
ROW(mq_timedsend) { ARGS(named_queue(c), IN(content, 500), 500, 1, TIME_IN(ONE_SECOND)); }
ROW(mq_timedreceive)
{
	int fd = named_queue(c);
	syscall(SYS_mq_timedsend, fd, content, 512, 7, NULL);
	ARGS(fd, OUT(512), 512, OUT(4), TIME_IN(ONE_SECOND));
}
ROW(mq_notify)
{
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2};
	ARGS(named_queue(c), IN(&event, sizeof event));
}
ROW(mq_getsetattr)
{
	long new[8] = {O_NONBLOCK};
	ARGS(named_queue(c), IN(new, sizeof new), OUT(64));
}

/* ---- memory ---- */
static uint8_t still_pages[3 * PAGE] __attribute__((aligned(PAGE)));
ROW(mincore)
{
	memset(still_pages, 1, sizeof still_pages);
	ARGS((long)still_pages, sizeof still_pages, OUT(3));
}
ROW(move_pages)
{
	uint64_t pages[2] = {(uint64_t)still_pages, (uint64_t)still_pages + PAGE};
	int nodes[2] = {0, 0};
	memset(still_pages, 1, sizeof still_pages);
	ARGS(0, 2, IN(pages, sizeof pages), IN(nodes, sizeof nodes), OUT(8), 2);
}
static const unsigned long NODES[16] = {1};
ROW(migrate_pages) { ARGS(0, 64, IN(NODES, 8), IN(NODES, 8)); }
ROW(mbind) { ARGS((long)still_pages, PAGE, 2, IN(NODES, 128), 1024, 0); }
ROW(set_mempolicy) { ARGS(2, IN(NODES, 128), 1024); c->in_child = true; }
ROW(get_mempolicy) { ARGS(OUT(4), OUT(128), 1024, 0, 0); }
ROW(process_madvise)
{
	struct iovec v[2] = {{still_pages, PAGE}, {still_pages + PAGE, PAGE}};
	int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	if (fd >= 0)
		call_fd(c, fd);
	ARGS(fd, IN(v, sizeof v), 2, MADV_COLD, 0);
}
ROW(process_vm_readv)
{
	long local = vector(c, NULL, 0);
	ARGS(getpid(), local, 2, vector(c, content, 0), 2, 0);
}
ROW(process_vm_writev)
{
	long local = vector(c, content, 0);
	ARGS(getpid(), local, 2, vector(c, NULL, 0), 2, 0);
}

/* ---- the system: changes fail ---- */
#define NOTHING TEXT("/torture/no/such/thing")
ROW(mount) { ARGS(NOTHING, NOTHING, TEXT("torturefs"), 0, IN(content, PAGE)); }
ROW(umount2) { ARGS(NOTHING, 0); }
ROW(pivot_root) { ARGS(NOTHING, NOTHING); }
ROW(open_tree) { ARGS(AT_FDCWD, TEXT(path("still")), O_CLOEXEC); c->gives_fd = true; }
static const uint64_t READ_ONLY[4] = {1};
ROW(open_tree_attr)
{
	ARGS(AT_FDCWD, NOTHING, O_CLOEXEC | 1, IN(READ_ONLY, sizeof READ_ONLY), sizeof READ_ONLY);
}
ROW(move_mount) { ARGS(AT_FDCWD, TEXT(folder), AT_FDCWD, NOTHING, 0); }
ROW(fsopen) { ARGS(TEXT("tmpfs"), 1); c->gives_fd = true; }
static int new_fs(struct call *c)
{
	int fd = (int)syscall(SYS_fsopen, "tmpfs", 1);
	return fd >= 0 ? call_fd(c, fd) : fd;
}
ROW(fsconfig) { ARGS(new_fs(c), 1, TEXT("size"), TEXT("1048576"), 0); }
ROW(fspick) { ARGS(AT_FDCWD, NOTHING, 1); }
ROW(mount_setattr)
{
	ARGS(AT_FDCWD, NOTHING, 0, IN(READ_ONLY, sizeof READ_ONLY), sizeof READ_ONLY);
}
static uint64_t some_mount(void)
{
	uint64_t request[3] = {24, ~0ull, 0}, mount = 0;
	return syscall(SYS_listmount, request, &mount, 1, 0) == 1 ? mount : 1;
}
ROW(statmount)
{
	uint64_t request[3] = {24, some_mount(), 2 | 8};
	ARGS(IN(request, sizeof request), OUT(1024), 1024, 0);
}
ROW(listmount)
{
	uint64_t request[3] = {24, ~0ull, 0};
	ARGS(IN(request, sizeof request), OUT(16), 2, 0);
}
ROW(swapon) { ARGS(NOTHING, 0); }
ROW(swapoff) { ARGS(NOTHING); }
ROW(acct) { ARGS(NOTHING); }
ROW(quotactl) { ARGS(0x800005 << 8, TEXT("/dev/null"), 0, OUT(24)); }
ROW(quotactl_fd) { ARGS(opened(c, ".", O_RDONLY), 0x800005 << 8, 0, OUT(24)); }
static const char *host_name(void)
{
	static char name[65];
	gethostname(name, sizeof name - 1);
	return name;
}
static const char *domain_name(void)
{
	static char name[65];
	getdomainname(name, sizeof name - 1);
	return name;
}
ROW(sethostname) { ARGS(TEXT(host_name()), strlen(host_name())); }
ROW(setdomainname) { ARGS(TEXT(domain_name()), strlen(domain_name())); }
ROW(reboot) { ARGS(0, 0, 0xa1b2c3d4, TEXT("not magic")); }
ROW(syslog) { ARGS(3, OUT_VARIES(300), 300); c->result_varies = true; }
ROW(init_module) { ARGS(IN(content, LONG), LONG, TEXT("")); }
ROW(finit_module) { ARGS(opened(c, "still", O_RDONLY), TEXT("an=option"), 0); }
ROW(delete_module) { ARGS(TEXT("torture_no_module"), O_NONBLOCK); }
ROW(kexec_file_load) { ARGS(-1, -1, 5, TEXT("root"), 0); }
ROW(add_key)
{
	ARGS(TEXT("user"), TEXT("torture"), IN(content, 500), 500, -2);
	c->result_varies = true;
}
static long some_key(void)
{
	return syscall(SYS_add_key, "user", "torture", content, 500, -2);
}
ROW(request_key)
{
	some_key();
	ARGS(TEXT("user"), TEXT("torture"), TEXT("for whom makes keys"), 0);
	c->result_varies = true;
}
ROW(keyctl) { ARGS(11, some_key(), OUT(500), 500); }
MORE(keyctl, update) { ARGS(2, some_key(), IN(content, 500), 500); }
MORE(keyctl, search) { some_key(); ARGS(10, -2, TEXT("user"), TEXT("torture"), 0); c->result_varies = true; }
static const uint64_t EXECUTE[1] = {1};
ROW(landlock_create_ruleset) { ARGS(IN(EXECUTE, 8), 8, 0); c->gives_fd = true; }
ROW(landlock_add_rule)
{
	struct {
		uint64_t access;
		int parent;
	} __attribute__((packed)) rule = {1, opened(c, ".", O_PATH)};
	int fd = (int)syscall(SYS_landlock_create_ruleset, EXECUTE, 8, 0);
	if (fd >= 0)
		call_fd(c, fd);
	ARGS(fd, 1, IN(&rule, sizeof rule), 0);
}
ROW(lsm_get_self_attr) { ARGS(100, OUT(400), IN(&(uint32_t){400}, 4), 0); }
ROW(lsm_set_self_attr) { ARGS(100, IN(content, 64), 64, 0); }
ROW(lsm_list_modules) { ARGS(OUT(128), IN(&(uint32_t){128}, 4), 0); }
ROW(perf_event_open)
{
	struct perf_event_attr a = {.type = PERF_TYPE_SOFTWARE, .size = sizeof a};
	a.config = PERF_COUNT_SW_DUMMY;
	a.exclude_kernel = 1;
	ARGS(IN(&a, sizeof a), 0, -1, -1, 0);
	c->gives_fd = true;
}

/* ---- calls of x86-64 only ---- */
#ifdef __x86_64__
ROW(open) { ARGS(TEXT(path("still")), O_RDONLY); c->gives_fd = true; }
ROW(creat) { ARGS(TEXT(fresh(c, "one")), 0600); c->gives_fd = true; }
ROW(stat) { ARGS(TEXT(path("still")), OUT(sizeof(struct stat))); }
ROW(lstat) { ARGS(TEXT(path("still")), OUT(sizeof(struct stat))); }
ROW(ustat)
{
	struct stat s;
	MUST(TABLE, stat(folder, &s) == 0);
	ARGS((long)s.st_dev, OUT_VARIES(32));
}
ROW(access) { ARGS(TEXT(path("still")), R_OK); }
ROW(readlink) { ARGS(TEXT(path("link")), OUT(18), 18); }
ROW(rename) { ARGS(TEXT(file(c, "one")), TEXT(fresh(c, "two"))); }
ROW(link) { ARGS(TEXT(file(c, "one")), TEXT(fresh(c, "two"))); }
ROW(symlink) { ARGS(TEXT("somewhere/else"), TEXT(fresh(c, "two"))); }
ROW(unlink) { ARGS(TEXT(file(c, "one"))); }
ROW(mkdir) { ARGS(TEXT(fresh(c, "one")), 0700); }
ROW(rmdir)
{
	const char *p = fresh(c, "one");
	MUST(TABLE, mkdir(p, 0700) == 0);
	ARGS(TEXT(p));
}
ROW(mknod) { ARGS(TEXT(fresh(c, "one")), S_IFREG | 0600, 0); }
ROW(chmod) { ARGS(TEXT(file(c, "one")), 0600); }
ROW(chown) { ARGS(TEXT(file(c, "one")), -1, -1); }
ROW(lchown) { ARGS(TEXT(file(c, "one")), -1, -1); }
static const long OLD_TIMES[4] = {1000, 5, 2000, 7};
ROW(utime) { ARGS(TEXT(file(c, "one")), IN(OLD_TIMES, 16)); }
ROW(utimes) { ARGS(TEXT(file(c, "one")), IN(OLD_TIMES, 32)); }
ROW(futimesat) { ARGS(AT_FDCWD, TEXT(file(c, "one")), IN(OLD_TIMES, 32)); }
ROW(getdents) { ARGS(opened(c, "many", O_RDONLY | O_DIRECTORY), OUT(LONG), LONG); }
ROW(pipe) { ARGS(OUT_VARIES(8)); c->extra = close_both; }
ROW(poll)
{
	struct ends e = full_pipe(c);
	struct pollfd p[3] = {{e.from, POLLIN, 0}, {e.to, POLLOUT, 0}, {-1, POLLIN, 0}};
	ARGS(IN(p, sizeof p), 3, 1000);
}
ROW(select)
{
	struct ends e = full_pipe(c);
	struct sets s = sets_of(e.from, e.to);
	struct timeval t = {1, 0};
	ARGS(128, IN(s.read, 16), IN(s.write, 16), IN(s.except, 16), INOUT_VARIES(&t, sizeof t));
}
ROW(epoll_wait) { ARGS(poller(c), OUT(2 * EVENT), 2, 1000); }
ROW(signalfd)
{
	sigset_t set = one_signal(SIGUSR2);
	ARGS(-1, IN(&set, 8), 8);
	c->gives_fd = true;
}
ROW(getrlimit) { ARGS(RLIMIT_NOFILE, OUT(16)); }
ROW(setrlimit)
{
	struct rlimit limit;
	getrlimit(RLIMIT_CORE, &limit);
	ARGS(RLIMIT_CORE, IN(&limit, sizeof limit));
}
ROW(time) { ARGS(OUT_VARIES(8)); c->result_varies = true; }
ROW(sysfs) { ARGS(1, TEXT("proc")); }
MORE(sysfs, name) { ARGS(2, 0, OUT(32)); }
ROW(arch_prctl) { ARGS(0x1003, OUT(8)); }
ROW(modify_ldt)
{
	uint32_t entry[4] = {0, 0, 0, 0x28};
	ARGS(1, IN(entry, sizeof entry), sizeof entry);
	c->in_child = true;
}
#endif

/* ---- the part ---- */
static void make_files(void)
{
	MUST(TABLE, mkdtemp(folder) != NULL && mkdir(path("many"), 0700) == 0);
	const char *names[] = {"still", "read"};
	bytes_fill(content, sizeof content, 77);
	for (int i = 0; i < 2; i++) {
		int fd = open(path(names[i]), O_CREAT | O_RDWR, 0600);
		MUST(TABLE, fd >= 0 && write(fd, content, sizeof content) == sizeof content);
		close(fd);
	}
	MUST(TABLE, symlink("where/it/points/to", path("link")) == 0);
	for (int i = 0; i < 100; i++) {
		char name[32];
		snprintf(name, sizeof name, "many/a file %d", i);
		MUST(TABLE, close(open(path(name), O_CREAT | O_RDWR, 0600)) == 0);
	}
}

static void remove_files(void)
{
	for (int i = 0; i < 100; i++) {
		char name[32];
		snprintf(name, sizeof name, "many/a file %d", i);
		unlink(path(name));
	}
	rmdir(path("many"));
	unlink(path("still")), unlink(path("read")), unlink(path("link"));
	MUST(TABLE, chdir("/") == 0 && rmdir(folder) == 0);
}

void part_table(void)
{
	struct deadline until = deadline_new();
	sigset_t blocked = one_signal(SIGUSR2), old;
	struct sigaction action = {.sa_handler = on_signal}; /* calls are interrupted */
	int calls = 0;
	make_files();
	ways_begin();
	signal(SIGPIPE, SIG_IGN);
	sigaction(SIGUSR2, &action, NULL);
	sigaction(SIGALRM, &action, NULL);
	pthread_sigmask(SIG_BLOCK, &blocked, &old);
	MUST(TABLE, chdir(folder) == 0);
	for (bool first = true; first || !deadline_passed(&until); first = false)
		for (const struct row *row = all_rows; row && (first || !deadline_passed(&until));
		     row = row->next) {
			row_exercise(row, first);
			calls++;
		}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	remove_files();
	ways_end();
	printf("table: %d rows exercised\n", calls);
}
