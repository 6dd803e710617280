"""Clusters points around centres that overlap with scikit-learn, and prints what it found: arguments are points and rounds."""

import sys

import numpy
from sklearn.cluster import KMeans

CLUSTERS = 8
DIMENSIONS = 32

points, rounds = int(sys.argv[1]), int(sys.argv[2])
random = numpy.random.default_rng(7)
centres = random.uniform(-0.5, 0.5, (CLUSTERS, DIMENSIONS))
data = centres[random.integers(0, CLUSTERS, points)]
data += random.standard_normal(data.shape)
model = KMeans(CLUSTERS, init=data[:CLUSTERS], n_init=1, max_iter=rounds, tol=0, algorithm="lloyd").fit(data)
# Sums may differ in their last digits with the alignment of arrays.
print(f"inertia {model.inertia_:.5e}")
for centre in model.cluster_centers_:
    print(" ".join(f"{value:.3f}" for value in centre))
print(" ".join(map(str, numpy.bincount(model.labels_))))
