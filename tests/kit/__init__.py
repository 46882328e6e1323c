"""Tools of the tests: random walks against a model, crashes, power failures, simulated stores."""
