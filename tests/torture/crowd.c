/* Transfers between processes that have few frames, since all use theirs all the time.
 * usage: crowd PROCESSES. A socket copies up to 64 KiB at once, or fails; a long write is made in hundreds of parts.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20, DATA = 2 * MIB, LONG = 512 * MIB, DATAGRAM = 60000, OTHERS_MAX = 64 };

/* A way to move `bytes`, through a pipe if `kind` is 0. */
static const struct way {
	const char *name;
	int kind, vector, flags, bytes;
} ways[] = {
	{"a stream", SOCK_STREAM, 0, 0, DATA},
	{"a stream, vectors", SOCK_STREAM, 1, 0, DATA},
	{"a stream, MSG_WAITALL", SOCK_STREAM, 0, MSG_WAITALL, DATA},
	{"datagrams", SOCK_DGRAM, 0, 0, DATA},
	{"datagrams, vectors", SOCK_DGRAM, 1, 0, DATA},
	{"a long write to a pipe", 0, 0, 0, LONG},
};
enum { WAYS = sizeof ways / sizeof *ways };

static void check(int holds, const char *way, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "crowd: %s: %s (%s)\n", way, what, strerror(errno));
	exit(1);
}

/* Only the first bytes are not zeros: pages of zeros come and go without I/O. */
static unsigned char byte(size_t at)
{
	return at < DATA ? (unsigned char)(at * 7 + at / 4096) : 0;
}

/* Waits for the end of a pipe, then uses its memory until the parent has ended. */
static void keep_busy(int start)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	char none;
	(void)!read(start, &none, 1);
	size_t bytes = 4 * MIB;
	volatile char *memory = malloc(bytes);
	for (;;)
		for (size_t at = 0; at < bytes; at += 4096) {
			memory[at]++;
			if (at % (64 * 4096) == 0)
				usleep(10000);
		}
}

static void send_all(const struct way *way, int to, const unsigned char *data)
{
	size_t most = way->kind == SOCK_DGRAM ? DATAGRAM : (size_t)way->bytes;
	for (size_t left = (size_t)way->bytes; left;) {
		size_t part = left < most ? left : most;
		struct iovec v[2] = {{(void *)data, part / 3}, {(void *)(data + part / 3), part - part / 3}};
		ssize_t done = way->vector ? writev(to, v, 2) : write(to, data, part);
		/* A call writes everything to a blocking descriptor, or fails. */
		check(done == (ssize_t)part, way->name, "a blocking send fails or stops");
		data += part, left -= part;
	}
	close(to);
}

static void receive_all(const struct way *way, int from, unsigned char *buffer)
{
	for (size_t got = 0, all = (size_t)way->bytes; got < all;) {
		size_t room = all - got < MIB ? all - got : MIB;
		struct iovec v[2] = {{buffer, 100}, {buffer + 100, MIB - 100}};
		ssize_t done = way->vector ? readv(from, v, 2)
			       : way->kind ? recv(from, buffer, room, way->flags)
					   : read(from, buffer, room);
		check(done > 0, way->name, "a receive fails");
		check(!(way->flags & MSG_WAITALL) || (size_t)done == room, way->name, "a receive stops");
		for (ssize_t at = 0; at < done; at++)
			check(buffer[at] == byte(got + (size_t)at), way->name, "a wrong byte arrives");
		got += (size_t)done;
	}
}

int main(int count, char **words)
{
	int others = count > 1 ? atoi(words[1]) : 0;
	check(others > 0 && others <= OTHERS_MAX, "usage", "crowd PROCESSES (1 to 64)");
	unsigned char *buffer = malloc(MIB);
	int start[2], ends[WAYS][2];
	check(pipe(start) == 0, "start", "no pipe");
	for (int i = 0; i < WAYS; i++) {
		check((ways[i].kind ? socketpair(AF_UNIX, ways[i].kind, 0, ends[i]) : pipe(ends[i])) == 0, ways[i].name,
		      "no sockets or pipe");
		/* The receiver does not hear of a sender of datagrams that fails. */
		struct timeval patience = {.tv_sec = 100};
		check(!ways[i].kind || !setsockopt(ends[i][0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience),
		      ways[i].name, "no time-out");
	}
	pid_t child[OTHERS_MAX + 1];
	for (int i = 0; i <= others; i++) {
		if ((child[i] = fork()))
			continue;
		close(start[1]);
		if (i < others)
			keep_busy(start[0]);
		unsigned char *data = calloc(LONG, 1);
		for (size_t at = 0; at < DATA; at++)
			data[at] = byte(at);
		for (int w = 0; w < WAYS; w++) {
			close(ends[w][0]);
			send_all(&ways[w], ends[w][1], data);
		}
		return 0;
	}
	close(start[0]), close(start[1]);
	for (int w = 0; w < WAYS; w++) {
		close(ends[w][1]);
		receive_all(&ways[w], ends[w][0], buffer);
	}
	int status;
	check(waitpid(child[others], &status, 0) == child[others] && status == 0, "sender", "it fails");
	for (int i = 0; i < others; i++) {
		kill(child[i], SIGKILL);
		waitpid(child[i], NULL, 0);
	}
	return 0;
}
