/* A search tree in an arena of managed memory: nothing but the tree is paged.
 *
 *     cc -O2 -Iinclude -o /tmp/tree examples/tree.c
 *     flashvm run --ram 64M --select api -- /tmp/tree 2300000
 *
 * usage: tree KEYS
 *
 * Inserts KEYS keys at random, deletes every third, walks the rest in order. Prints their number and a checksum; on stderr
 * what paging cost.
 */
#include <flashvm_arena.h>

#include <stdio.h>
#include <stdlib.h>

struct node {
	struct node *left, *right;
	uint64_t key;
};

static uint64_t mix(uint64_t z)
{
	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
	z = (z ^ z >> 27) * 0x94D049BB133111EBull;
	return z ^ z >> 31;
}

static void fail(const char *what)
{
	fprintf(stderr, "tree: %s: %s\n", what, flashvm_explain(errno));
	exit(1);
}

/* Where the link to `key` is, or would be. */
static struct node **place(struct node **root, uint64_t key)
{
	while (*root && (*root)->key != key)
		root = key < (*root)->key ? &(*root)->left : &(*root)->right;
	return root;
}

static void delete_at(flashvm_arena *arena, struct node **link)
{
	struct node *gone = *link;
	if (!gone->left || !gone->right) {
		*link = gone->left ? gone->left : gone->right;
	} else {
		/* The next key takes the place. */
		struct node **next = &gone->right, *heir;
		while ((*next)->left)
			next = &(*next)->left;
		heir = *next;
		*next = heir->right;
		heir->left = gone->left;
		heir->right = gone->right;
		*link = heir;
	}
	flashvm_arena_free(arena, gone, sizeof *gone, 0);
}

static void walk(const struct node *node, uint64_t *count, uint64_t *sum)
{
	for (; node; node = node->right) {
		walk(node->left, count, sum);
		*sum = (*sum ^ node->key) * 0x100000001B3ull;
		++*count;
	}
}

int main(int argc, char **argv)
{
	uint64_t keys = argc == 2 ? strtoull(argv[1], NULL, 10) : 0, count = 0, sum = 0;
	struct node *root = NULL;
	struct flashvm_stats stats;
	flashvm_arena *arena;
	if (!keys) {
		fprintf(stderr, "usage: tree KEYS\n");
		return 2;
	}
	arena = flashvm_arena_create();
	if (!arena)
		fail("an arena");
	for (uint64_t i = 0; i < keys; i++) {
		struct node **link = place(&root, mix(i));
		struct node *node = (struct node *)flashvm_arena_alloc(arena, sizeof *node, 0);
		if (!node)
			fail("a node");
		node->left = node->right = NULL;
		node->key = mix(i);
		*link = node;
	}
	for (uint64_t i = 0; i < keys; i += 3)
		delete_at(arena, place(&root, mix(i)));
	walk(root, &count, &sum);
	printf("%llu keys, checksum %016llx\n", (unsigned long long)count, (unsigned long long)sum);
	if (flashvm_get_stats(&stats) != 0)
		fail("statistics");
	fprintf(stderr, "tree: %llu faults, %llu of them from flash; %llu MiB in RAM, %llu MiB written to flash\n",
		(unsigned long long)stats.faults, (unsigned long long)stats.major,
		(unsigned long long)(stats.resident_bytes >> 20), (unsigned long long)(stats.written_bytes >> 20));
	flashvm_arena_destroy(arena);
	return 0;
}
