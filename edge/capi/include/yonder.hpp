/*
 * yonder.hpp - yonder.h for C++17: what is opened is closed by itself, and an allocator for the standard containers
 *
 *     yonder::far_memory memory({.far_url = "tcp://127.0.0.1:7000", .memory_bytes = 64ull << 30,
 *                                .local_bytes = 4ull << 30});              // of C++20; before it, set one by one
 *     std::vector<double, yonder::allocator<double>> numbers(1'000'000'000);
 *
 *     yonder::process process("udp://127.0.0.1:7000");
 *     yonder::thread thread = process.open();
 *     const std::uint64_t address = thread.allocate(1 << 20);
 *     thread.write(address, "kept far away", 14);
 *
 * Nothing is added to what yonder.h says but this: a call that fails throws yonder::error, whose code() is the positive
 * errno in the generic category and whose what() begins with the library's line. Destructors never throw. Objects can be moved
 * and not copied; one that was moved from can be assigned to and destroyed. All of it is inline, and works with
 * whatever version of the library yonder.h works with.
 *
 * YONDER_TRY of yonder.h skips destructors, so touch far memory in it by plain reads and writes, in a function of its
 * own that has no objects with destructors.
 */
#ifndef YONDER_HPP
#define YONDER_HPP

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

#include <yonder.h>

namespace yonder {

/* What a call of yonder.h that fails is. */
class error : public std::system_error {
public:
	/* Of a call that has returned `result`, a negative errno. */
	explicit error(int result) : std::system_error(-result, std::generic_category(), yonder_error_message()) {}
};

namespace detail {

inline int checked(int result)
{
	if (result < 0)
		throw error(result);
	return result;
}

/* A handle that is closed by `Close`. */
template <typename Handle, void (*Close)(Handle *)>
class owned {
public:
	owned() = default;
	explicit owned(Handle *handle) noexcept : handle_(handle) {}
	owned(owned &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
	owned &operator=(owned &&other) noexcept
	{
		if (this != &other)
			reset(std::exchange(other.handle_, nullptr));
		return *this;
	}
	owned(const owned &) = delete;
	owned &operator=(const owned &) = delete;
	~owned() { reset(nullptr); }

	Handle *get() const noexcept { return handle_; }

private:
	void reset(Handle *handle) noexcept
	{
		Close(handle_);
		handle_ = handle;
	}

	Handle *handle_ = nullptr;
};

} /* namespace detail */

/* ---- Remote address spaces -------------------------------------------------------------------------------------- */

/* yonder_config with its defaults. */
inline yonder_config default_config() noexcept
{
	return YONDER_CONFIG_DEFAULT;
}

/* One thread's way to an address space: of one thread at a time. */
class thread {
public:
	/* For calls of yonder.h that are not here. */
	yonder_thread *get() const noexcept { return handle_.get(); }

	/* Where `bytes` were allocated; YONDER_READ, YONDER_WRITE and YONDER_BACKED are its flags. */
	std::uint64_t allocate(std::uint64_t bytes, unsigned flags = YONDER_READ | YONDER_WRITE)
	{
		std::uint64_t address = 0;
		detail::checked(yonder_ralloc(get(), bytes, flags, &address));
		return address;
	}
	void free(std::uint64_t address) { detail::checked(yonder_rfree(get(), address)); }

	void read(std::uint64_t address, void *into, std::size_t length)
	{
		detail::checked(yonder_rread(get(), address, into, length));
	}
	void write(std::uint64_t address, const void *from, std::size_t length)
	{
		detail::checked(yonder_rwrite(get(), address, from, length));
	}
	/* A value that can be copied byte by byte. */
	template <typename Value>
	Value read(std::uint64_t address)
	{
		static_assert(std::is_trivially_copyable<Value>::value, "its bytes are not all of it");
		Value value;
		read(address, &value, sizeof value);
		return value;
	}
	template <typename Value>
	void write(std::uint64_t address, const Value &value)
	{
		static_assert(std::is_trivially_copyable<Value>::value, "its bytes are not all of it");
		write(address, &value, sizeof value);
	}

	yonder_pending begin_read(std::uint64_t address, void *into, std::size_t length)
	{
		yonder_pending pending = 0;
		detail::checked(yonder_rread_async(get(), address, into, length, &pending));
		return pending;
	}
	yonder_pending begin_write(std::uint64_t address, const void *from, std::size_t length)
	{
		yonder_pending pending = 0;
		detail::checked(yonder_rwrite_async(get(), address, from, length, &pending));
		return pending;
	}
	/* Whether it has been done. Throws if it has failed; then, and once it is done, the name is used up. */
	bool poll(yonder_pending pending) { return detail::checked(yonder_rpoll(get(), pending)) == 1; }
	void wait(yonder_pending pending) { detail::checked(yonder_rwait(get(), pending)); }
	void release() { detail::checked(yonder_rrelease(get())); }
	void fence() { detail::checked(yonder_rfence(get())); }

	std::uint64_t test_and_set(std::uint64_t address)
	{
		std::uint64_t old = 0;
		detail::checked(yonder_test_and_set(get(), address, &old));
		return old;
	}
	std::uint64_t fetch_add(std::uint64_t address, std::uint64_t more)
	{
		std::uint64_t old = 0;
		detail::checked(yonder_fetch_add(get(), address, more, &old));
		return old;
	}
	std::uint64_t compare_and_swap(std::uint64_t address, std::uint64_t expected, std::uint64_t desired)
	{
		std::uint64_t old = 0;
		detail::checked(yonder_compare_and_swap(get(), address, expected, desired, &old));
		return old;
	}

private:
	friend class process;
	explicit thread(yonder_thread *handle) noexcept : handle_(handle) {}

	detail::owned<yonder_thread, yonder_thread_close> handle_;
};

/* A user of a remote address space. */
class process {
public:
	/* One with an address space of its own. */
	explicit process(const std::string &url, const yonder_config &config = default_config())
	{
		yonder_process *handle = nullptr;
		detail::checked(yonder_process_create(url.c_str(), &config, &handle));
		handle_ = owned(handle);
	}
	/* One that uses the address space that the ticket is of. */
	process(const std::string &url, const std::string &ticket, const yonder_config &config = default_config())
	{
		yonder_process *handle = nullptr;
		detail::checked(yonder_process_open(url.c_str(), ticket.c_str(), &config, &handle));
		handle_ = owned(handle);
	}

	/* For calls of yonder.h that are not here. */
	yonder_process *get() const noexcept { return handle_.get(); }

	/* A way to the address space, for one thread. */
	thread open() const
	{
		yonder_thread *opened = nullptr;
		detail::checked(yonder_thread_open(get(), &opened));
		return thread(opened);
	}
	/* YONDER_RIGHTS_... as a text for another program. */
	std::string ticket(unsigned rights) const
	{
		char text[YONDER_TICKET_BYTES];
		detail::checked(yonder_process_ticket(get(), rights, text, sizeof text));
		return text;
	}

private:
	using owned = detail::owned<yonder_process, yonder_process_close>;
	owned handle_;
};

/* Holds the lock at an address of a thread: a word that was 0 at first. */
class lock_guard {
public:
	lock_guard(thread &thread, std::uint64_t address) : thread_(thread), address_(address)
	{
		detail::checked(yonder_rlock(thread.get(), address));
	}
	lock_guard(const lock_guard &) = delete;
	lock_guard &operator=(const lock_guard &) = delete;
	/* A lock that cannot be given back has gone with its node. */
	~lock_guard() { yonder_runlock(thread_.get(), address_); }

private:
	thread &thread_;
	std::uint64_t address_;
};

/* ---- Far memory ------------------------------------------------------------------------------------------------- */

/* yonder_memory_config with its defaults. */
inline yonder_memory_config default_memory_config() noexcept
{
	return YONDER_MEMORY_CONFIG_DEFAULT;
}

/* The far memory of the program, open as long as this is there. */
class far_memory {
public:
	explicit far_memory(const yonder_memory_config &config) { detail::checked(yonder_memory_open(&config)); }
	far_memory(const std::string &far_url, std::uint64_t memory_bytes, std::uint64_t local_bytes)
		: far_memory(configured(far_url, memory_bytes, local_bytes))
	{
	}
	far_memory(const far_memory &) = delete;
	far_memory &operator=(const far_memory &) = delete;
	/* Something that is still allocated keeps it open. */
	~far_memory() { yonder_memory_close(); }

	/* Closes it now, and throws if something is still allocated. */
	static void close() { detail::checked(yonder_memory_close()); }

	static yonder_memory stats()
	{
		yonder_memory stats{};
		detail::checked(yonder_memory_stats(&stats));
		return stats;
	}

private:
	static yonder_memory_config configured(const std::string &url, std::uint64_t memory, std::uint64_t local) noexcept
	{
		yonder_memory_config config = default_memory_config();
		config.far_url = url.c_str();
		config.memory_bytes = memory;
		config.local_bytes = local;
		return config;
	}
};

/* An allocator of far memory, for the containers of the standard library. The container itself stays where it is: only
 * what it allocates is far. All of these are equal, so containers swap and move what they have. */
template <typename T>
class allocator {
public:
	using value_type = T;
	using is_always_equal = std::true_type;
	using propagate_on_container_move_assignment = std::true_type;

	allocator() noexcept = default;
	template <typename Other>
	allocator(const allocator<Other> &) noexcept
	{
	}

	/* Throws std::bad_alloc where far memory has no room or is not open, as allocators do. */
	T *allocate(std::size_t count)
	{
		if (count > std::numeric_limits<std::size_t>::max() / sizeof(T))
			throw std::bad_array_new_length();
		void *block = alignof(T) > alignof(std::max_align_t) ? yonder_memalign(alignof(T), count * sizeof(T))
								      : yonder_malloc(count * sizeof(T));
		if (block == nullptr)
			throw std::bad_alloc();
		return static_cast<T *>(block);
	}
	void deallocate(T *block, std::size_t) noexcept { yonder_free(block); }
};

template <typename One, typename Other>
bool operator==(const allocator<One> &, const allocator<Other> &) noexcept
{
	return true;
}

template <typename One, typename Other>
bool operator!=(const allocator<One> &, const allocator<Other> &) noexcept
{
	return false;
}

} /* namespace yonder */

#endif /* YONDER_HPP */
