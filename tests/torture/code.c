/* Generated code, several times larger than the budget, that several threads execute: some pages may be executed and
 * loaded, some stored to as well. A thread stays in a page for a while, so pages leave while they are being executed.
 *
 * usage: code MIB SECONDS        Exit code 1 if a page returns what another should.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096
#define THREADS 4
/* Times round the loop of a page. */
#define TURNS 200000

static unsigned char *code;
static unsigned pages;
static volatile int over;

/* mov ecx, TURNS; again: dec ecx; jnz again; mov eax, page; ret */
static void generate(unsigned page)
{
	unsigned char bytes[] = {0xb9, 0, 0, 0, 0, 0xff, 0xc9, 0x75, 0xfc, 0xb8, 0, 0, 0, 0, 0xc3};
	unsigned turns = TURNS;
	memcpy(bytes + 1, &turns, 4);
	memcpy(bytes + 10, &page, 4);
	memcpy(code + (size_t)page * PAGE, bytes, sizeof bytes);
}

static void *call(void *seed)
{
	unsigned random = (unsigned)(size_t)seed;
	while (!over) {
		unsigned page, result;
		random = random * 1103515245 + 12345;
		page = (random >> 8) % pages;
		result = ((unsigned (*)(void))(code + (size_t)page * PAGE))();
		if (result != page) {
			printf("page %u returns %u\n", page, result);
			exit(1);
		}
		/* The other half may be stored to as well. */
		if (page >= pages / 2 && (random >> 4) % 4 == 0)
			code[(size_t)page * PAGE + PAGE - 1]++;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	size_t bytes;
	if (argc != 3)
		return 2;
	bytes = (size_t)atoi(argv[1]) << 20;
	pages = bytes / PAGE;
	code = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (code == MAP_FAILED)
		return 2;
	for (unsigned page = 0; page < pages; page++)
		generate(page);
	if (mprotect(code, bytes / 2, PROT_READ | PROT_EXEC)
	    || mprotect(code + bytes / 2, bytes / 2, PROT_READ | PROT_WRITE | PROT_EXEC))
		return 2;
	for (size_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, call, (void *)(i + 1));
	usleep(atof(argv[2]) * 1e6);
	over = 1;
	for (size_t i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	puts("all pages return what they should");
	return 0;
}
