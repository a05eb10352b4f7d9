// C++17: a std::pmr memory resource in managed memory, for the containers that are large.
//
//     flashvm::arena_resource flash;
//     std::pmr::unordered_map<std::string_view, long> index(&flash);
//
// Everything else stays where it was. One thread at a time uses a resource.
#ifndef FLASHVM_HPP
#define FLASHVM_HPP

#include "flashvm_arena.h"

#include <memory_resource>
#include <new>
#include <system_error>

namespace flashvm {

/// An arena as a memory resource; with it all its memory is freed.
class arena_resource final : public std::pmr::memory_resource {
public:
	/// Throws std::system_error outside of a run, and if budget and store have no room.
	arena_resource() : arena_(flashvm_arena_create())
	{
		if (!arena_)
			throw std::system_error(errno, std::generic_category(), flashvm_explain(errno));
	}
	~arena_resource() override { flashvm_arena_destroy(arena_); }
	arena_resource(const arena_resource &) = delete;
	arena_resource &operator=(const arena_resource &) = delete;

	/// Bytes mapped for objects, freed ones included.
	std::size_t mapped_bytes() const noexcept { return arena_->mapped_bytes; }

private:
	void *do_allocate(std::size_t bytes, std::size_t align) override
	{
		void *object = flashvm_arena_alloc(arena_, bytes, align);
		if (!object)
			throw std::bad_alloc();
		return object;
	}
	void do_deallocate(void *object, std::size_t bytes, std::size_t align) override
	{
		flashvm_arena_free(arena_, object, bytes, align);
	}
	bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override { return this == &other; }

	flashvm_arena *arena_;
};

/// The statistics of this process. Throws std::system_error outside of a run.
inline flashvm_stats stats()
{
	struct flashvm_stats now;
	if (flashvm_get_stats(&now) != 0)
		throw std::system_error(errno, std::generic_category(), flashvm_explain(errno));
	return now;
}

} // namespace flashvm

#endif
