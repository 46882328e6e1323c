"""Layer 5: a register of manifests outside the dataset, for places that cannot decide a race."""
