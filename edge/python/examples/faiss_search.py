"""Vector search with Faiss over vectors that lie in far memory.

    python faiss_search.py [URL]

Faiss' own index copies what is added to it, into local memory. So the vectors stay in a far array here, and Faiss looks
at them where they are: coarsely by an index of their clusters, which is small and local, and then exactly by
`faiss.knn` over the vectors of the clusters that were found, which lie beside one another. Faiss' threads touch far
memory like any others.
"""

import sys

import faiss
import numpy
import yonder

VECTORS, DIMENSIONS, CLUSTERS = 100_000, 32, 64
QUERIES, NEAREST, PROBES = 20, 5, 8


def main() -> int:
    url = sys.argv[1] if len(sys.argv) > 1 else "emu://"
    with yonder.open(url, local="4MiB", memory="128MiB") as memory:
        generator = numpy.random.default_rng(1)
        middles = generator.normal(scale=4, size=(CLUSTERS, DIMENSIONS)).astype(numpy.float32)
        vectors = memory.empty((VECTORS, DIMENSIONS), numpy.float32)
        for start in range(0, VECTORS, 10_000):
            noise = generator.normal(size=(10_000, DIMENSIONS))
            vectors[start : start + 10_000] = noise + middles[generator.integers(0, CLUSTERS, 10_000)]

        # Clusters of a sample; then each vector's, some vectors at a time.
        coarse = faiss.Kmeans(DIMENSIONS, CLUSTERS, niter=5, seed=1)
        coarse.train(yonder.read(vectors[:10_000]))
        cluster_of = numpy.concatenate(
            [coarse.index.search(vectors[start : start + 10_000], 1)[1][:, 0] for start in range(0, VECTORS, 10_000)]
        )

        # The vectors once more, a cluster's beside one another, and from now on read-only.
        order = numpy.argsort(cluster_of, kind="stable")
        ordered = memory.empty(vectors.shape, numpy.float32)
        numpy.take(vectors, order, axis=0, out=ordered)
        ordered = memory.seal(ordered)
        ends = numpy.searchsorted(cluster_of[order], numpy.arange(CLUSTERS + 1))

        queries = (middles[:QUERIES] + 0.1).astype(numpy.float32)
        found = [search(query, coarse.index, ordered, ends, order) for query in queries]
        exact = faiss.knn(queries, vectors, NEAREST)[1]
        right = numpy.mean([len(set(a) & set(b)) / NEAREST for a, b in zip(found, exact, strict=True)])
        stats = memory.stats()
        print(f"{vectors.nbytes >> 20} MiB of vectors, {stats.local_bytes_max >> 20} MiB local at most")
        print(f"{right:.0%} of the nearest are found; right: {right >= 0.9}")
        return 0 if right >= 0.9 else 1


def search(query, clusters, ordered, ends, order):
    """The vectors that are nearest to a query, in those clusters that are."""
    best = []
    for cluster in clusters.search(query[None], PROBES)[1][0]:
        part = ordered[ends[cluster] : ends[cluster + 1]]
        if len(part):
            distances, places = faiss.knn(query[None], part, min(NEAREST, len(part)))
            best += zip(distances[0], order[places[0] + ends[cluster]], strict=True)
    return [number for _, number in sorted(best)[:NEAREST]]


if __name__ == "__main__":
    sys.exit(main())
