/*
 * far_vector.cpp - containers of the standard library in far memory, and a remote counter, in C++
 *
 *     c++ -std=c++17 far_vector.cpp -o far_vector $(pkg-config --cflags --libs yonder)
 *     yonder node --listen tcp://127.0.0.1:7000 --memory 256MiB &
 *     ./far_vector tcp://127.0.0.1:7000
 */
#include <cstdint>
#include <iostream>
#include <numeric>
#include <string>
#include <unordered_map>
#include <vector>

#include <yonder.hpp>

template <typename T>
using far_vector = std::vector<T, yonder::allocator<T>>;
using far_string = std::basic_string<char, std::char_traits<char>, yonder::allocator<char>>;
using far_map = std::unordered_map<std::uint32_t, far_string, std::hash<std::uint32_t>, std::equal_to<>,
				   yonder::allocator<std::pair<const std::uint32_t, far_string>>>;

struct alignas(64) wide {
	std::uint64_t number;
};

/* Eight times as much as is local. Returns what is wrong. */
static int containers(const std::string &url)
{
	constexpr std::size_t numbers_max = std::size_t{2} << 20;
	const yonder::far_memory memory(url, std::uint64_t{64} << 20, std::uint64_t{4} << 20);
	int wrong = 0;
	{
		far_vector<std::uint64_t> numbers(numbers_max);
		std::iota(numbers.begin(), numbers.end(), 0);
		const auto sum = std::accumulate(numbers.begin(), numbers.end(), std::uint64_t{0});
		wrong += sum != std::uint64_t{numbers_max} / 2 * (numbers_max - 1);

		far_map names;
		for (std::uint32_t key = 0; key < 20000; key++)
			names.emplace(key, far_string(40 + key % 60, static_cast<char>('a' + key % 26)));
		for (std::uint32_t key = 0; key < 20000; key++)
			wrong += names.at(key) != far_string(40 + key % 60, static_cast<char>('a' + key % 26)).c_str();

		far_vector<wide> wides(1000, wide{7});
		wrong += reinterpret_cast<std::uintptr_t>(wides.data()) % alignof(wide) != 0;
		far_vector<wide> moved = std::move(wides);
		wrong += moved.size() != 1000 || moved.back().number != 7;

		try {
			yonder::far_memory::close();
			wrong += 1;
		} catch (const yonder::error &error) {
			wrong += error.code() != std::errc::device_or_resource_busy;
		}
		try {
			far_vector<std::uint64_t>(std::size_t{1} << 40);
			wrong += 1;
		} catch (const std::bad_alloc &) {
		}
		const yonder_memory stats = yonder::far_memory::stats();
		wrong += stats.local_bytes_max > std::uint64_t{4} << 20;
		std::cout << (stats.fetched_bytes >> 20) << " MiB were fetched, ";
	}
	return wrong;
}

/* Two processes of this interface count at one word. Returns what is wrong. */
static int counter(const std::string &url)
{
	yonder::process owner(url);
	yonder::thread one = owner.open();
	const std::uint64_t word = one.allocate(4096), lock = word + 8;
	yonder::process guest(url, owner.ticket(YONDER_RIGHTS_READ_WRITE));
	yonder::thread other = guest.open();
	for (int turn = 0; turn < 100; turn++) {
		yonder::thread &thread = turn % 2 == 0 ? one : other;
		const yonder::lock_guard held(thread, lock);
		thread.write<std::uint64_t>(word, thread.read<std::uint64_t>(word) + 1);
	}
	other.fetch_add(word, 10);
	int wrong = one.read<std::uint64_t>(word) != 110;
	const std::uint64_t last = 5;
	std::uint64_t back = 0;
	one.wait(one.begin_write(word, &last, sizeof last));
	const yonder_pending pending = one.begin_read(word, &back, sizeof back);
	while (!one.poll(pending))
		;
	wrong += back != last;
	yonder::thread moved = std::move(other);
	try {
		moved.read<std::uint64_t>(std::uint64_t{1} << 60);
		wrong += 1;
	} catch (const yonder::error &error) {
		wrong += error.code() != std::errc::bad_address;
	}
	return wrong;
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		std::cerr << "usage: far_vector URL, such as tcp://127.0.0.1:7000\n";
		return 2;
	}
	try {
		const int wrong = containers(argv[1]) + counter(argv[1]);
		std::cout << wrong << " things were wrong\n";
		return wrong == 0 ? 0 : 1;
	} catch (const std::exception &error) {
		std::cerr << "far_vector: " << error.what() << '\n';
		return 1;
	}
}
