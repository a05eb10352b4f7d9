// C++: all forms of new and delete, containers above the budget, exceptions.
//
// usage: torture_cxx MIB SEED      exit status 0 only if every check held

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

static void check(bool held, const char *what)
{
	if (held)
		return;
	std::fprintf(stderr, "torture_cxx: FAILED: expected %s\n", what);
	std::_Exit(1);
}

struct alignas(256) Aligned {
	std::uint64_t word[64];
	explicit Aligned(std::uint64_t tag)
	{
		for (int i = 0; i < 64; i++)
			word[i] = tag + i;
	}
	bool holds(std::uint64_t tag) const
	{
		for (int i = 0; i < 64; i++)
			if (word[i] != tag + i)
				return false;
		return true;
	}
};

static void forms(std::uint64_t seed)
{
	for (std::uint64_t i = 0; i < 2000; i++) {
		auto *one = new std::uint64_t(seed + i);
		auto *many = new std::uint64_t[1 + i % 5000]();
		auto *aligned = new Aligned(i);
		auto *array = static_cast<Aligned *>(::operator new[](3 * sizeof(Aligned), std::align_val_t(256)));
		auto *nothrow = new (std::nothrow) char[1 + i * 7];
		check(*one == seed + i && many[i % 5000] == 0, "a fresh value and zeros");
		check(reinterpret_cast<std::uintptr_t>(aligned) % 256 == 0 && aligned->holds(i), "alignment 256");
		check(reinterpret_cast<std::uintptr_t>(array) % 256 == 0, "alignment 256 of an array");
		check(nothrow != nullptr, "memory without an exception");
		delete one;
		delete[] many;
		delete aligned;
		::operator delete[](array, std::align_val_t(256));
		delete[] nothrow;
	}
	bool thrown = false;
	try {
		volatile std::size_t huge = SIZE_MAX / 4;
		// A direct call: the compiler may elide a new-expression.
		::operator delete(::operator new(huge));
	} catch (const std::bad_alloc &) {
		thrown = true;
	}
	check(thrown, "bad_alloc");
}

static void containers(std::size_t mib, std::uint64_t seed)
{
	const std::size_t n = mib * (1 << 20) / 96;
	std::unordered_map<std::uint64_t, std::string> table;
	std::map<std::uint64_t, std::uint64_t> tree;
	for (std::size_t i = 0; i < n; i++) {
		std::uint64_t key = (i + seed) * 0x9E3779B97F4A7C15ull;
		table[key] = std::to_string(key);
		if (i % 4 == 0)
			tree[key] = i;
	}
	for (std::size_t i = 0; i < n; i++) {
		std::uint64_t key = (i + seed) * 0x9E3779B97F4A7C15ull;
		auto found = table.find(key);
		check(found != table.end() && found->second == std::to_string(key), "a key with its text");
	}
	std::uint64_t before = 0;
	std::size_t count = 0;
	for (const auto &[key, value] : tree) {
		check(count == 0 || key > before, "keys in order");
		check((value + seed) * 0x9E3779B97F4A7C15ull == key, "the value of its key");
		before = key;
		count++;
	}
	check(count == (n + 3) / 4, "all keys");
	std::vector<std::uint64_t> numbers;
	for (std::size_t i = 0; i < mib << 17; i++)
		numbers.push_back(i * 0xD6E8FEB86659FD93ull);
	std::sort(numbers.begin(), numbers.end());
	check(std::is_sorted(numbers.begin(), numbers.end()), "sorted numbers");
}

static void threads_with_exceptions()
{
	std::vector<std::thread> crowd;
	for (int t = 0; t < 4; t++)
		crowd.emplace_back([t] {
			for (int i = 0; i < 500; i++) {
				try {
					auto text = std::make_unique<std::string>(10000 + i, 'a' + t);
					throw std::runtime_error(*text);
				} catch (const std::runtime_error &error) {
					check(error.what()[9999] == 'a' + t, "the text of the exception");
				}
			}
		});
	for (auto &thread : crowd)
		thread.join();
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		std::fprintf(stderr, "usage: torture_cxx MIB SEED\n");
		return 2;
	}
	std::uint64_t seed = std::strtoull(argv[2], nullptr, 0);
	forms(seed);
	containers(std::strtoul(argv[1], nullptr, 0), seed);
	threads_with_exceptions();
	std::puts("torture_cxx: all checks held");
	return 0;
}
