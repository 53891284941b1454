"""Settings become adapters. The only module that names concrete ones."""
