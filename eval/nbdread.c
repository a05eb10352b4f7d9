/* Times random reads of 4 KiB by a polling NBD client that does nothing else: the floor for a page-in from a server.
 *
 * usage: nbdread EXPORT_MIB READS SOCKET_PATH|HOST:PORT
 *
 * One connection, one request at a time, simple replies, the export with the empty name; HOST is an address, as in
 * 127.0.0.1:10809.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

enum { PAGE = 4096 };

static int fd;

static _Noreturn void fail(const char *what)
{
	fprintf(stderr, "nbdread: %s: %s\n", what, strerror(errno));
	exit(1);
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static void out(const void *bytes, size_t len)
{
	if (send(fd, bytes, len, MSG_NOSIGNAL) != (ssize_t)len)
		fail("send");
}

static void in(void *bytes, size_t len)
{
	for (size_t got = 0; got < len;) {
		ssize_t n = recv(fd, (char *)bytes + got, len - got, MSG_DONTWAIT);
		if (n > 0)
			got += n;
		else if (n == 0 || errno != EAGAIN)
			fail("recv");
	}
}

static void reach(const char *where)
{
	if (strchr(where, '/')) {
		struct sockaddr_un at = {.sun_family = AF_UNIX};
		strncpy(at.sun_path, where, sizeof at.sun_path - 1);
		fd = socket(AF_UNIX, SOCK_STREAM, 0);
		if (connect(fd, (void *)&at, sizeof at))
			fail(where);
	} else {
		const char *port = strchr(where, ':');
		struct sockaddr_in at = {.sin_family = AF_INET};
		char host[64] = "";
		int yes = 1;
		if (!port || port - where >= (long)sizeof host)
			fail(where);
		memcpy(host, where, port - where);
		at.sin_port = htons(atoi(port + 1));
		if (!inet_aton(host, &at.sin_addr))
			fail(where);
		fd = socket(AF_INET, SOCK_STREAM, 0);
		if (connect(fd, (void *)&at, sizeof at))
			fail(where);
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
	}
}

static void agree(void)
{
	char greeting[18], go[16 + 6] = "IHAVEOPT\0\0\0\7\0\0\0\6", flags[4] = {0, 0, 0, 3};
	in(greeting, sizeof greeting);
	if (memcmp(greeting, "NBDMAGICIHAVEOPT", 16))
		fail("no NBD server");
	out(flags, sizeof flags);
	out(go, sizeof go);
	for (;;) {
		uint32_t reply[5];
		char contents[4096];
		in(reply, sizeof reply);
		in(contents, be32toh(reply[4]) % sizeof contents);
		if (be32toh(reply[3]) == 1)
			return;
		if (be32toh(reply[3]) != 3)
			fail("the export is refused");
	}
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	if (argc != 4) {
		fprintf(stderr, "usage: nbdread EXPORT_MIB READS SOCKET_PATH|HOST:PORT\n");
		return 2;
	}
	uint64_t pages = strtoull(argv[1], NULL, 10) << 8, state = 88172645463325252;
	int reads = atoi(argv[2]);
	double *times = calloc(reads, sizeof *times), sum = 0;
	static char page[16 + PAGE];
	reach(argv[3]);
	agree();
	for (int i = 0; i < reads; i++) {
		struct {
			uint32_t magic, command;
			uint64_t cookie, at;
			uint32_t len;
		} __attribute__((packed)) request = {htobe32(0x25609513), 0, i, 0, htobe32(PAGE)};
		state ^= state << 13, state ^= state >> 7, state ^= state << 17;
		request.at = htobe64(state % pages * PAGE);
		double begun = now();
		out(&request, sizeof request);
		in(page, sizeof page);
		if (memcmp(page, "\x67\x44\x66\x98\0\0\0", 8))
			fail("no reply without an error");
		sum += times[i] = now() - begun;
	}
	qsort(times, reads, sizeof *times, by_value);
	printf("mean %.1f us, p50 %.1f us, p99 %.1f us\n", sum / reads * 1e6, times[reads / 2] * 1e6,
	       times[reads - reads / 100 - 1] * 1e6);
}
