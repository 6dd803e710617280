// What Yonder calls of Faiss: an IndexIVFFlat whose inverted lists may lie in memory of Yonder's, and searches of it that go on a
// few vectors at a time.
//
// `glue.rs` compiles this when it is first wanted and links the static library of Debian's libfaiss-dev into it; `functions.rs` has
// the same functions as Rust types. What Faiss throws ends in `told`; but what is thrown in a parallel part of it, as by an `add` to
// lists that are only read, ends the process, as with any OpenMP. A touch of far memory that fails leaves a function in the middle, as
// if it had never been called: what it had allocated is lost, so nothing here may lock around such a touch. Only `yonder_faiss_step`
// and `yonder_faiss_search` make one.

#include <faiss/IndexFlat.h>
#include <faiss/IndexIVFFlat.h>
#include <faiss/utils/Heap.h>
#include <pthread.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <vector>

#define YONDER extern "C" __attribute__((visibility("default")))

// OpenMP, with teams of one: the library's parallel parts run on the thread that calls them, and nothing waits for other threads
// or stays in theirs. Hidden, so that they are this library's alone.
namespace {
pthread_mutex_t critical = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t atomic_update = PTHREAD_MUTEX_INITIALIZER;
} // namespace

extern "C" {
void GOMP_parallel(void (*body)(void*), void* data, unsigned, unsigned) { body(data); }
void GOMP_barrier() {}
bool GOMP_single_start() { return true; }
bool GOMP_loop_nonmonotonic_dynamic_start(long start, long end, long step, long, long* from, long* to) {
    *from = start;
    *to = end;
    return step > 0 ? start < end : start > end;
}
bool GOMP_loop_nonmonotonic_dynamic_next(long*, long*) { return false; }
void GOMP_loop_end() {}
void GOMP_critical_start() { pthread_mutex_lock(&critical); }
void GOMP_critical_end() { pthread_mutex_unlock(&critical); }
void GOMP_atomic_start() { pthread_mutex_lock(&atomic_update); }
void GOMP_atomic_end() { pthread_mutex_unlock(&atomic_update); }
int omp_get_max_threads() { return 1; }
int omp_get_num_threads() { return 1; }
int omp_get_thread_num() { return 0; }
int omp_get_nested() { return 0; }
int omp_in_parallel() { return 0; }
void omp_set_nested(int) {}
void omp_set_num_threads(int) {}
}

namespace {

// Room for what a function says of its failure, given by whoever calls it.
constexpr size_t WHY_BYTES = 512;

// Does what may throw; its result, or -1 and the text of what was thrown.
template <class Work> int told(char* why, Work work) noexcept {
    try {
        return work();
    } catch (const std::exception& error) {
        snprintf(why, WHY_BYTES, "%s", error.what());
    } catch (...) {
        snprintf(why, WHY_BYTES, "something was thrown that says nothing");
    }
    return -1;
}

struct List {
    const uint8_t* codes;
    const int64_t* ids;
    size_t length;
};

// Inverted lists in memory of somebody else, who keeps it as long as the index is there.
struct Placed final : faiss::InvertedLists {
    std::vector<List> lists;

    Placed(size_t code_size, const List* from, size_t nlist)
            : faiss::InvertedLists(nlist, code_size), lists(from, from + nlist) {}

    size_t list_size(size_t list) const override { return lists[list].length; }
    const uint8_t* get_codes(size_t list) const override { return lists[list].codes; }
    const int64_t* get_ids(size_t list) const override { return lists[list].ids; }

    size_t add_entries(size_t, size_t, const int64_t*, const uint8_t*) override { refuse(); }
    void update_entries(size_t, size_t, size_t, const int64_t*, const uint8_t*) override { refuse(); }
    void resize(size_t, size_t) override { refuse(); }

    [[noreturn]] static void refuse() { throw std::logic_error("the inverted lists have been moved and are only read"); }
};

// A search that goes on a few vectors at a time: what `IndexIVF::search` does with one query, in pieces.
struct Search {
    const faiss::IndexIVFFlat* index;
    std::unique_ptr<faiss::InvertedListScanner> scanner;
    std::vector<float> query;
    // Lists to be scanned, and how far their centroids are.
    std::vector<int64_t> lists;
    std::vector<float> coarse;
    // The nearest until now, a heap with the farthest on top.
    std::vector<float> distances;
    std::vector<int64_t> ids;
    // The next vector: of which of the lists, and its number there.
    size_t list = 0;
    size_t vector = 0;
};
using Heap = faiss::CMax<float, int64_t>;

} // namespace

YONDER int yonder_faiss_train(
        size_t dimension,
        size_t nlist,
        size_t count,
        const float* vectors,
        faiss::IndexIVFFlat** made,
        char* why) {
    return told(why, [&] {
        auto quantizer = std::make_unique<faiss::IndexFlatL2>(dimension);
        auto index = std::make_unique<faiss::IndexIVFFlat>(quantizer.get(), dimension, nlist);
        index->own_fields = true;
        quantizer.release();
        // How many vectors are enough is the caller's to say, and no matter for standard error.
        index->cp.min_points_per_centroid = 1;
        index->train(count, vectors);
        *made = index.release();
        return 0;
    });
}

YONDER int yonder_faiss_add(faiss::IndexIVFFlat* index, size_t count, const float* vectors, char* why) {
    return told(why, [&] {
        index->add(count, vectors);
        return 0;
    });
}

// Where each list is now.
YONDER int yonder_faiss_lists(const faiss::IndexIVFFlat* index, List* into, char* why) {
    return told(why, [&] {
        const faiss::InvertedLists& lists = *index->invlists;
        for (size_t list = 0; list < lists.nlist; list++) {
            into[list] = {lists.get_codes(list), lists.get_ids(list), lists.list_size(list)};
        }
        return 0;
    });
}

// From now on each list is read where these say, and the index' own are gone.
YONDER int yonder_faiss_place(faiss::IndexIVFFlat* index, const List* lists, char* why) {
    return told(why, [&] {
        index->replace_invlists(new Placed(index->code_size, lists, index->nlist), true);
        return 0;
    });
}

// Faiss' own search, in one go.
YONDER int yonder_faiss_search(
        const faiss::IndexIVFFlat* index,
        const float* query,
        size_t k,
        size_t nprobe,
        float* distances,
        int64_t* ids,
        char* why) {
    return told(why, [&] {
        faiss::SearchParametersIVF parameters;
        parameters.nprobe = nprobe;
        index->search(1, query, k, distances, ids, &parameters);
        return 0;
    });
}

// Finds the lists to be scanned, which reads centroids only. One query is fewer than Faiss asks BLAS for.
YONDER int yonder_faiss_begin(
        const faiss::IndexIVFFlat* index,
        const float* query,
        size_t k,
        size_t nprobe,
        Search** made,
        char* why) {
    return told(why, [&] {
        auto search = std::make_unique<Search>();
        search->index = index;
        search->query.assign(query, query + index->d);
        search->lists.resize(std::min(nprobe, index->nlist));
        search->coarse.resize(search->lists.size());
        search->distances.resize(k);
        search->ids.resize(k);
        index->quantizer->search(1, query, search->lists.size(), search->coarse.data(), search->lists.data());
        search->scanner.reset(index->get_InvertedListScanner(false, nullptr));
        search->scanner->set_query(search->query.data());
        faiss::heap_heapify<Heap>(k, search->distances.data(), search->ids.data());
        *made = search.release();
        return 0;
    });
}

// Scans the next vectors, at most so many: 1 if there are more, else 0.
YONDER int yonder_faiss_step(Search* search, size_t vectors_max, char* why) {
    return told(why, [&] {
        const faiss::InvertedLists& lists = *search->index->invlists;
        for (; search->list < search->lists.size(); search->list++, search->vector = 0) {
            const int64_t list = search->lists[search->list];
            if (list < 0) {
                continue; // Fewer lists were found than asked for.
            }
            const size_t length = lists.list_size(list);
            if (search->vector == 0) {
                search->scanner->set_list(list, search->coarse[search->list]);
            }
            const size_t count = std::min(vectors_max, length - search->vector);
            search->scanner->scan_codes(
                    count,
                    lists.get_codes(list) + search->vector * lists.code_size,
                    lists.get_ids(list) + search->vector,
                    search->distances.data(),
                    search->ids.data(),
                    search->ids.size());
            search->vector += count;
            vectors_max -= count;
            if (search->vector < length) {
                return 1;
            }
        }
        return 0;
    });
}

// What was found, the nearest first. Where there were fewer, ids are -1.
YONDER int yonder_faiss_found(Search* search, float* distances, int64_t* ids, char* why) {
    return told(why, [&] {
        faiss::heap_reorder<Heap>(search->ids.size(), search->distances.data(), search->ids.data());
        std::copy(search->distances.begin(), search->distances.end(), distances);
        std::copy(search->ids.begin(), search->ids.end(), ids);
        return 0;
    });
}

YONDER void yonder_faiss_end(Search* search) { delete search; }
YONDER void yonder_faiss_close(faiss::IndexIVFFlat* index) { delete index; }
