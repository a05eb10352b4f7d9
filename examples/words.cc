// Counts words in a std::pmr::unordered_map in managed memory: nothing but the map is paged.
//
//     c++ -std=c++17 -O2 -Iinclude -o /tmp/words examples/words.cc
//     flashvm run --ram 64M --select api -- /tmp/words 1000000 < /dev/null
//
// usage: words [GENERATED]
//
// Counts the words of standard input, and GENERATED words of its own: three of four are new. Prints the number of different words
// and the most frequent one; on stderr what paging cost.
#include <flashvm.hpp>

#include <cstdlib>
#include <iostream>
#include <string>
#include <unordered_map>

int main(int argc, char **argv)
try {
	flashvm::arena_resource flash;
	std::pmr::unordered_map<std::pmr::string, long> count(&flash);
	const long generated = argc > 1 ? std::atol(argv[1]) : 0;
	count.reserve(generated); // a growing map visits all its words
	std::string word;
	while (std::cin >> word)
		++count[std::pmr::string(word, &flash)];
	for (long i = 0; i < generated; i++) {
		word = "a generated word, number " + std::to_string(i % 4 ? i : i * 2654435761 % (i + 1));
		++count[std::pmr::string(word, &flash)];
	}
	auto most = count.begin();
	for (auto at = count.begin(); at != count.end(); ++at)
		if (at->second > most->second || (at->second == most->second && at->first < most->first))
			most = at;
	std::cout << count.size() << " words";
	if (most != count.end())
		std::cout << "; " << most->second << " times: " << most->first;
	std::cout << '\n';
	const auto now = flashvm::stats();
	std::cerr << "words: " << now.faults << " faults, " << now.major << " of them from flash; " << (flash.mapped_bytes() >> 20)
		  << " MiB mapped, " << (now.resident_bytes >> 20) << " MiB of them in RAM\n";
	return 0;
} catch (const std::exception &error) {
	std::cerr << "words: " << error.what() << '\n';
	return 1;
}
