/* Reads back pages through a store that fails or flips bits: right data or SIGBUS, never wrong data.
 *
 * usage: sigbus MIB ROUNDS [die]
 *
 * Exit status: 0 every page was right or gave SIGBUS (a system call: an error), 1 wrong data, 3 a lost
 * page of the heap ended the program. With "die" there is no handler: the first lost page must end the
 * program.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES_MAX = 1 << 20 };

static uint8_t lost[PAGES_MAX]; /* static data: not managed */
static uint32_t generation[PAGES_MAX];
static uint8_t copy[PAGE];
static sigjmp_buf probe;
static volatile sig_atomic_t probing;
static uint8_t *data;
static size_t bytes;

static void on_bus(int number, siginfo_t *info, void *context)
{
	(void)number;
	(void)context;
	uint8_t *at = info->si_addr;
	if (!probing || at < data || at >= data + bytes) {
		/* Not printf: it may need the lost page. */
		static const char message[] = "sigbus: a page outside of the data is lost\n";
		(void)!write(2, message, sizeof message - 1);
		_exit(3);
	}
	siglongjmp(probe, 1);
}

static uint64_t word(size_t page, size_t i)
{
	return (page * 512 + i) * 0x9E3779B97F4A7C15ull + generation[page];
}

static void verify(const uint64_t *w, size_t page, const char *how)
{
	for (size_t i = 0; i < PAGE / 8; i++) {
		if (w[i] == word(page, i))
			continue;
		dprintf(2, "sigbus: FAILED: wrong data %s: page %zu word %zu: expected %#llx, found %#llx\n",
			how, page, i, (unsigned long long)word(page, i), (unsigned long long)w[i]);
		_exit(1);
	}
}

int main(int argc, char **argv)
{
	if (argc < 3) {
		dprintf(2, "usage: sigbus MIB ROUNDS [die]\n");
		return 2;
	}
	bytes = strtoul(argv[1], NULL, 10) << 20;
	size_t pages = bytes / PAGE, bus = 0, refused = 0, right = 0;
	int rounds = atoi(argv[2]);
	if (pages == 0 || pages > PAGES_MAX)
		return 2;
	data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (data == MAP_FAILED)
		return 2;
	if (argc == 3) {
		struct sigaction action = {.sa_flags = SA_SIGINFO | SA_NODEFER};
		action.sa_sigaction = on_bus;
		sigaction(SIGBUS, &action, NULL);
	}
	for (size_t p = 0; p < pages; p++)
		for (size_t i = 0; i < PAGE / 8; i++)
			((uint64_t *)(data + p * PAGE))[i] = word(p, i);
	int fds[2];
	if (pipe(fds))
		return 2;
	for (volatile int round = 0; round < rounds; round++) {
		for (volatile size_t p = 0; p < pages; p++) {
			uint64_t *volatile w = (uint64_t *)(data + p * PAGE);
			probing = 1;
			if (sigsetjmp(probe, 1)) {
				probing = 0;
				bus++;
				lost[p] = 1;
				continue;
			}
			if (p % 16 == 5) {
				/* The kernel must fail, or copy the right bytes. */
				ssize_t n = write(fds[1], w, PAGE);
				probing = 0;
				if (n < 0) {
					refused++;
					lost[p] = 1;
					continue;
				}
				if (n != PAGE || read(fds[0], copy, PAGE) != PAGE) {
					dprintf(2, "sigbus: FAILED: %zd bytes of page %zu into a pipe\n", n, p);
					return 1;
				}
				verify((uint64_t *)copy, p, "through a pipe");
			} else {
				verify(w, p, "by a load");
				if (p % 3 == 0) {
					generation[p]++;
					for (size_t i = 0; i < PAGE / 8; i++)
						w[i] = word(p, i);
				}
				probing = 0;
			}
			right++;
		}
	}
	size_t lost_pages = 0;
	for (size_t p = 0; p < pages; p++)
		lost_pages += lost[p];
	dprintf(1, "sigbus: %zu reads right, %zu SIGBUS, %zu refused by the kernel, %zu of %zu pages lost\n",
		right, bus, refused, lost_pages, pages);
	return 0;
}
